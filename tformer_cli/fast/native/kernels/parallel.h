/* Work in shares: by the threads that torch computes with, or by a team of one call's own. */
#ifndef TFORMER_PARALLEL_H
#define TFORMER_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Items that the threads of one piece of work divide among themselves. */
typedef struct Shares Shares;

/* What each thread does: it asks for shares until there are none left. */
typedef void (*Task)(void *job, Shares *shares);

/* Gives the calling thread the next items, `*first` to `*last` - 1; false where none are left. */
bool next_share(Shares *shares, size_t *first, size_t *last);

/* Runs a task on at most `n_threads` threads and waits for all of them; a thread is given `share`
   of the `n_items` items at a time. What is computed must not depend on which thread does it. */
void run_parallel(Task task, void *job, size_t n_items, size_t share, size_t n_threads);

/* Products of the calling thread are shared by up to `n_threads` threads, itself among them, until
   it ends its team; none starts before there is work for it. */
void tformer_begin_team(int64_t n_threads);
void tformer_end_team(void);

/* Multiplications and additions that are worth sharing: about 15 microseconds of one thread, several
   times what it takes a team to begin and to end. */
#define WORTH_SHARING ((size_t)1 << 18)

/* Computes the columns `first` to `last` - 1 of a product. */
typedef void (*ComputeColumns)(const void *product, size_t first, size_t last);

/* Computes all columns of a product of so many multiplications, by the team of the calling thread if
   it has one; each thread is given whole runs of `unit` columns, the last of which may be shorter. */
void share_columns(ComputeColumns compute, const void *product, size_t n_columns, size_t unit,
                   size_t work);

#endif
