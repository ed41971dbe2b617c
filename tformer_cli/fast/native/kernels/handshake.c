/* What a library states about itself, for Python to compare before it calls anything. */
#include <stddef.h>
#include <string.h>

#include "attention.h"
#include "attention_training.h"
#include "bias_gradient.h"
#include "dropout.h"
#include "encoding.h"
#include "loss.h"
#include "matmul.h"
#include "model.h"
#include "norm.h"
#include "orthogonal.h"
#include "quantized.h"
#include "residual_norm.h"
#include "scoring.h"
#include "search.h"
#include "vocabulary.h"

/* A struct that Python fills: structs.py has the same under the same name. */
typedef struct {
    const char *name;
    size_t size;
} StatedSize;

#define SIZE_OF(Struct) {#Struct, sizeof(Struct)}

static const StatedSize sizes[] = {
    SIZE_OF(Shape),
    SIZE_OF(Request),
    SIZE_OF(Answer),
    SIZE_OF(ScoreRequest),
    SIZE_OF(EncodeRequest),
    SIZE_OF(BiasGradient),
    SIZE_OF(HeadRows),
    SIZE_OF(AttentionPass),
    SIZE_OF(ResidualNorm),
    SIZE_OF(Orthogonalization),
    SIZE_OF(RowLoss),
    SIZE_OF(Dropout),
    /* Those that only tests fill */
    SIZE_OF(PackedMatrix),
    SIZE_OF(Linear),
    SIZE_OF(Epilogue),
    SIZE_OF(QuantizedRows),
    SIZE_OF(Norm),
    SIZE_OF(Memory),
    SIZE_OF(Arena),
    SIZE_OF(NextTokens),
    SIZE_OF(Vocabulary),
};

/* Returns the bytes of a struct by its name; 0: the library has none of that name. */
size_t tformer_struct_size(const char *name) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(sizes[i].name, name))
            return sizes[i].size;
    return 0;
}

#ifndef TFORMER_SOURCES
#define TFORMER_SOURCES ""
#endif
#ifndef TFORMER_PROCESSOR
#define TFORMER_PROCESSOR ""
#endif

/* Digest of the sources that the library was made from. */
const char *tformer_sources(void) { return TFORMER_SOURCES; }

/* Digest of the processor that it was made for; "": for all of its level. */
const char *tformer_processor(void) { return TFORMER_PROCESSOR; }
