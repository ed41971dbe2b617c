#include "parallel.h"

/* OpenMP's own entry point, as compilers call it. A library compiled with OpenMP would bring
   threads of its own, which would be in the way of torch's: those wait for work by spinning. */
typedef void (*StartThreads)(void (*function)(void *), void *data, unsigned n_threads,
                             unsigned flags);

static StartThreads start_threads;

/* Takes GOMP_parallel of the OpenMP library that torch runs on; NULL: one thread does everything.
 */
void tformer_use_threads(StartThreads function) { start_threads = function; }

struct Shares {
    size_t n_items, share;
    size_t next; /* first item that nobody has */
};

typedef struct {
    Task task;
    void *job;
    Shares *shares;
} Piece;

bool next_share(Shares *shares, size_t *first, size_t *last) {
    *first = __atomic_fetch_add(&shares->next, shares->share, __ATOMIC_RELAXED);
    if (*first >= shares->n_items)
        return false;
    const size_t n_left = shares->n_items - *first;
    *last = *first + (n_left < shares->share ? n_left : shares->share);
    return true;
}

static void run_piece(void *data) {
    const Piece *piece = data;
    piece->task(piece->job, piece->shares);
}

void run_parallel(Task task, void *job, size_t n_items, size_t share, size_t n_threads) {
    Shares shares = {.n_items = n_items, .share = share ? share : 1};
    Piece piece = {task, job, &shares};
    const size_t n_shares = (n_items + shares.share - 1) / shares.share;
    /* All of torch's threads even for few shares: OpenMP ends those that a smaller team leaves
       idle, and torch's next operator would start them again. */
    if (n_threads > 1 && n_shares > 1 && start_threads)
        start_threads(run_piece, &piece, (unsigned)n_threads, 0);
    else
        run_piece(&piece);
}
