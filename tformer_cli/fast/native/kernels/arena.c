#define _GNU_SOURCE /* madvise beside C11 */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
/* The address sanitizer knows blocks of the allocator, not their parts: what lies between two parts
   is forbidden by name, and there is always something between. */
#define FORBID(memory, size) ASAN_POISON_MEMORY_REGION(memory, size)
#define ALLOW(memory, size) ASAN_UNPOISON_MEMORY_REGION(memory, size)
#define BETWEEN_PARTS ((size_t)64)
#else
#define FORBID(memory, size) ((void)0)
#define ALLOW(memory, size) ((void)0)
#define BETWEEN_PARTS ((size_t)0)
#endif

#define ALIGNMENT ((size_t)64)
#define HUGE_PAGE ((size_t)1 << 21)

size_t saturated_product(size_t a, size_t b) {
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

void *arena_take(Arena *arena, size_t count, size_t size) {
    size_t bytes, rounded, end;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, ALIGNMENT - 1 + BETWEEN_PARTS, &rounded) ||
        __builtin_add_overflow(arena->used, rounded / ALIGNMENT * ALIGNMENT, &end)) {
        arena->is_too_large = true;
        return NULL;
    }
    char *taken = arena->memory ? arena->memory + arena->used : NULL;
    if (taken)
        FORBID(taken + bytes, end - arena->used - bytes);
    arena->used = end;
    return taken;
}

bool arena_allocate(Arena *arena) {
    /* Large blocks are read again and again: on pages of 2 MiB they miss fewer translations of
       addresses. */
    const size_t alignment = arena->used >= 4 * HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    size_t size;
    if (arena->is_too_large || __builtin_add_overflow(arena->used, alignment, &size))
        return false;
    size = size / alignment * alignment;
    arena->memory = aligned_alloc(alignment, size);
    if (!arena->memory)
        return false;
#if defined(MADV_HUGEPAGE)
    if (alignment == HUGE_PAGE)
        (void)madvise(arena->memory, size, MADV_HUGEPAGE); /* where it is refused, all still works */
#endif
    arena->used = 0;
    return true;
}

void arena_free(Arena *arena) {
    if (arena->memory)
        ALLOW(arena->memory, arena->used);
    free(arena->memory);
    *arena = (Arena){0};
}
