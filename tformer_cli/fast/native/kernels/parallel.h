/* Work in shares, by the threads that torch computes with. */
#ifndef TFORMER_PARALLEL_H
#define TFORMER_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

/* Items that the threads of one piece of work divide among themselves. */
typedef struct Shares Shares;

/* What each thread does: it asks for shares until there are none left. */
typedef void (*Task)(void *job, Shares *shares);

/* Gives the calling thread the next items, `*first` to `*last` - 1; false where none are left. */
bool next_share(Shares *shares, size_t *first, size_t *last);

/* Runs a task on at most `n_threads` threads and waits for all of them; a thread is given `share`
   of the `n_items` items at a time. What is computed must not depend on which thread does it. */
void run_parallel(Task task, void *job, size_t n_items, size_t share, size_t n_threads);

#endif
