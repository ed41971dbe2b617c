"""A student of a teacher's translations, from one recipe to a report; `distill` joins the stages.

Read in this order: `stages` (what is skipped, resumed or done again), `display`, `setup` (inputs
and places), `translations` (what teachers write), `selection` (what the student reads), `students`,
`report`, `distill`.
"""
