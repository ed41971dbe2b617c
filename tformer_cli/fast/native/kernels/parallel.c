#include "parallel.h"

#include <pthread.h>
#include <sched.h>

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

#define MOST_HELPERS 127

/* Looks for work before a helper sleeps: some 100 microseconds, longer than a search computes between
   two products, for waking a thread takes as long as a small product. */
#define MOST_LOOKS 4000

/* Looks of a leader for helpers that are not done, before it lets others have its processor: some
   tens of microseconds. */
#define LOOKS_OF_LEADER 1000

/* Helpers of one thread. It never waits for a helper that has not begun: on a busy machine such a
   one may not run for long, and the thread then computes all shares itself. */
typedef struct {
    size_t n_threads; /* that there may be, the leader among them; 0: there is no team */
    size_t n_helpers; /* that were started */
    Piece *piece;     /* what there is to do; NULL: nothing */
    size_t n_pieces;  /* so far: a helper does not look twice into one that has no shares left */
    size_t n_inside;  /* helpers that may read the piece */
    size_t n_asleep;
    bool is_over;
    pthread_mutex_t lock; /* for those that sleep */
    pthread_cond_t wake;
    pthread_t helpers[MOST_HELPERS];
} Team;

static _Thread_local Team own;

#define GET(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define SET(field, value) __atomic_store_n(&(field), value, __ATOMIC_SEQ_CST)
#define ADD(field, value) __atomic_add_fetch(&(field), value, __ATOMIC_SEQ_CST)

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits for another piece than the n-th; returns its number. */
static size_t next_piece(Team *team, size_t n) {
    for (size_t look = 0; look < MOST_LOOKS; look++) {
        if (GET(team->n_pieces) != n || GET(team->is_over))
            return GET(team->n_pieces);
        relax();
    }
    pthread_mutex_lock(&team->lock);
    ADD(team->n_asleep, 1); /* before the last look: then the leader sees it, or it the piece */
    while (GET(team->n_pieces) == n && !GET(team->is_over))
        pthread_cond_wait(&team->wake, &team->lock);
    ADD(team->n_asleep, -1);
    pthread_mutex_unlock(&team->lock);
    return GET(team->n_pieces);
}

static void *help(void *data) {
    Team *team = data;
    for (size_t n = 0; !GET(team->is_over);) {
        n = next_piece(team, n);
        ADD(team->n_inside, 1);
        const Piece *piece = GET(team->piece);
        if (piece)
            run_piece((void *)piece);
        ADD(team->n_inside, -1);
    }
    return NULL;
}

static void wake_helpers(void) {
    if (!GET(own.n_asleep))
        return;
    pthread_mutex_lock(&own.lock);
    pthread_cond_broadcast(&own.wake);
    pthread_mutex_unlock(&own.lock);
}

void tformer_begin_team(int64_t n_threads) {
    const int64_t most = MOST_HELPERS + 1;
    own.n_threads = (size_t)(n_threads < 1 ? 1 : n_threads > most ? most : n_threads);
}

/* Starts the helpers when there is work for the first time; fewer where the system has no more. */
static void start_helpers(void) {
    pthread_mutex_init(&own.lock, NULL);
    pthread_cond_init(&own.wake, NULL);
    while (own.n_helpers + 1 < own.n_threads &&
           pthread_create(own.helpers + own.n_helpers, NULL, help, &own) == 0)
        own.n_helpers++;
    own.n_threads = own.n_helpers + 1;
}

void tformer_end_team(void) {
    if (own.n_helpers) {
        SET(own.is_over, true);
        wake_helpers();
        for (size_t i = 0; i < own.n_helpers; i++)
            pthread_join(own.helpers[i], NULL);
        pthread_mutex_destroy(&own.lock);
        pthread_cond_destroy(&own.wake);
    }
    own = (Team){0};
}

typedef struct {
    ComputeColumns compute;
    const void *product;
    size_t n_columns, unit;
} ColumnJob;

static void compute_shares(void *data, Shares *shares) {
    const ColumnJob *job = data;
    size_t first, last;
    while (next_share(shares, &first, &last)) {
        const size_t end = last * job->unit;
        job->compute(job->product, first * job->unit, end < job->n_columns ? end : job->n_columns);
    }
}

void share_columns(ComputeColumns compute, const void *product, size_t n_columns, size_t unit,
                   size_t work) {
    if (own.n_threads > 1 && work >= WORTH_SHARING && !own.n_helpers)
        start_helpers();
    if (!own.n_helpers || work < WORTH_SHARING) {
        compute(product, 0, n_columns);
        return;
    }
    /* One share for each thread: products of a row wait for memory, which is read fastest in long
       runs */
    const size_t n_units = (n_columns + unit - 1) / unit;
    Shares shares = {.n_items = n_units, .share = (n_units + own.n_threads - 1) / own.n_threads};
    ColumnJob job = {compute, product, n_columns, unit};
    Piece piece = {compute_shares, &job, &shares};
    SET(own.piece, &piece);
    ADD(own.n_pieces, 1);
    wake_helpers();
    run_piece(&piece);
    SET(own.piece, NULL); /* whoever comes now finds nothing */
    /* On a busy machine the helper may wait for the very processor that the leader waits on */
    for (size_t look = 1; GET(own.n_inside); look++)
        if (look % LOOKS_OF_LEADER)
            relax();
        else
            sched_yield();
}
