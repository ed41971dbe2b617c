"""The built-in corpus: English–French sentence pairs with gold word alignments, from a grammar.

Read in this order: the folder `words` (`lexicon.toml` and the forms of its words), `surface`
(tokens, elision, links, the finished pair), `determiners`, `phrases`, `clauses`, `adjuncts`, then
the constructions in `constructions`, `descriptions`, `coreference`, `complex` and `everyday`, last
`generate` (which construction how often, and the split) and `write`.

How a sentence is made. Both languages grow together. A token is a word with a bit mask, and two
words are aligned when their masks meet, so *didn't cross* / *n'a pas traversé* carries did–a,
n't–n', n't–pas and cross–traversé because the rules that make the words say so.

Constructions: transitive, intransitive and prepositional clauses in six tenses; description;
comparison; *there is* / *il y a*; possession and age; giving; travel (countries, cities); *can*,
*must* and verbs with an infinitive; passive; weather; coordination of subjects, objects and
clauses; an object taken up by a pronoun (*found the apple and ate it* / *l'a mangée*); reasons,
circumstances (*when*, *if*, *while*) and *that* clauses; subject and object relatives; questions
with and without question words; commands; greetings, introductions, likes, suggestions and small
talk; and the family of *The animal didn't cross the street because it was too tired (too wide)*,
plain, dated, reported and turned round with *so*.

Decisions, made so that one English sentence has one French translation:

- *you* is the polite *vous* to one man; *I* and *we* are masculine; *they* without a referent is
  *ils*. *it* and *they* agree with the noun they stand for in the same sentence.
- The simple past and the perfect are *passé composé*, but a state (*be*, *have*, *know*, *want*,
  *love*, …) in the past is *imparfait*. Progressives are simple tenses.
- Each English word has one translation in its construction: *leave* with an object is *quitter*,
  without one *partir*. A past like its present (*read*, *cut*) is never a plain plural present.
- The apostrophe is ``'`` and a plain space stands before ``?`` and ``!`` in French.

Tokenized forms split ``n't``, ``'s`` and punctuation in English; clitics (``l'``, ``n'``), inverted
pronouns (``-t-elle``) and punctuation in French.

The split holds out combinations of subject, verb and object (or adjective): a test sentence has at
least one that no training sentence has, while every word is common in training. The combination
*animal, cross, street* is always test material.
"""
