/* The exponential function and what follows from it, a vector at a time.

   The coefficients are fits at Chebyshev nodes in float64, rounded to float32; errors are of the
   polynomial, before the rounding of the arithmetic adds about one unit in the last place. */
#ifndef TFORMER_EXPONENTIAL_H
#define TFORMER_EXPONENTIAL_H

#include "vector.h"

/* e^x for x of at most 88; never below e^-87, near which float32 ends; NaN stays NaN.

   x = n·ln 2 + r with whole n and |r| <= ln 2 / 2, so that e^x = 2^n·e^r. ln 2 is subtracted in two
   parts, of which the first has few digits and its product with n is exact. e^r is 1 + r + r²·q(r),
   q of degree 4 (relative error 1.1e-8). */
INLINE Vector exponential(Vector x) {
    const Vector bounded = larger(broadcast(-87.0f), x);
    /* Adding 1.5·2^23 leaves no digits behind the point: the sum is rounded to a whole number,
       which is the difference of the bits. */
    const Vector shift = broadcast(12582912.0f);
    const Vector shifted = bounded * broadcast(1.44269504f) + shift;
    const Vector n = shifted - shift;
    Vector r = bounded - n * broadcast(0.693359375f);
    r -= n * broadcast(-2.12194440e-4f);
    Vector q = broadcast(1.393365033e-3f);
    q = q * r + broadcast(8.363181545e-3f);
    q = q * r + broadcast(4.166646493e-2f);
    q = q * r + broadcast(1.666657697e-1f);
    q = q * r + broadcast(0.5f);
    const Vector e_to_r = broadcast(1.0f) + (r + r * r * q);
    const IntVector power = ((IntVector)shifted - (IntVector)shift + 127) << 23;
    return e_to_r * (Vector)power;
}

/* σ(x) = 1 / (1 + e^-x); from -88 on down e^-x is as large as `exponential` can make it. */
INLINE Vector sigmoid(Vector x) {
    return broadcast(1.0f) / (broadcast(1.0f) + exponential(-larger(broadcast(-88.0f), x)));
}

/* The error function: x·p(x²) near 0 (degree 5, relative error 2.4e-8), and 1 - e^p(|x|) beyond
   (degree 7 in place of log(1 - erf), relative error 1.4e-8), with the sign of x. */
INLINE Vector error_function(Vector x) {
    const IntVector sign_bit = (IntVector)broadcast(-0.0f);
    const IntVector sign = (IntVector)x & sign_bit;
    Vector t = (Vector)((IntVector)x & ~sign_bit);
    const IntVector is_small = t < broadcast(0.95f);
    t = choose(t > broadcast(4.0f), broadcast(4.0f), t); /* from 3.92 on it is 1 in float32 */
    const Vector square = t * t;
    Vector near = broadcast(-5.881639454e-4f);
    near = near * square + broadcast(4.971958640e-3f);
    near = near * square + broadcast(-2.675242024e-2f);
    near = near * square + broadcast(1.128143708e-1f);
    near = near * square + broadcast(-3.761245936e-1f);
    near = near * square + broadcast(1.128379145f);
    near *= t;
    Vector far = broadcast(-1.567508024e-5f);
    far = far * t + broadcast(3.585407364e-4f);
    far = far * t + broadcast(-3.730344855e-3f);
    far = far * t + broadcast(2.374613792e-2f);
    far = far * t + broadcast(-1.057999158e-1f);
    far = far * t + broadcast(-6.359436973e-1f);
    far = far * t + broadcast(-1.128054299f);
    far = far * t + broadcast(-1.662107910e-4f);
    far = broadcast(1.0f) - exponential(far);
    return (Vector)((IntVector)choose(is_small, near, far) | sign);
}

/* x·Φ(x), the exact GELU (Hendrycks & Gimpel 2016). */
INLINE Vector gelu(Vector x) {
    const Vector half = broadcast(0.5f);
    return half * x * (broadcast(1.0f) + error_function(x * broadcast(0.70710678f)));
}

#endif
