/* Decoding of one sentence step by step, for a search that is not in the kernels. */
#ifndef TFORMER_SESSION_H
#define TFORMER_SESSION_H

#include "model.h"

typedef struct Session Session;

/* Encodes a sentence; the model must have an encoder and outlive the session.

   source: (n_source) tokens, the end of sentence included. most_rows: hypotheses at most.
   most_steps: calls of `tformer_step` at most. Returns NULL where there is no memory. */
Session *tformer_start_session(const Model *model, const int32_t *source, int64_t n_source,
                               int64_t most_rows, int64_t most_steps);

/* Decodes one more position.

   parents: (n_rows) which of the rows of the step before each hypothesis continues; not read in the
   first step. tokens: (n_rows) the token that each reads. log_probabilities: (n_rows, V) receives
   those of the next token, all of the vocabulary. Returns what `tformer_search` returns. */
int32_t tformer_step(Session *session, int64_t n_rows, const int64_t *parents,
                     const int32_t *tokens, float *log_probabilities);

void tformer_end_session(Session *session);

#endif
