"""Tasks: what an agent is asked, what it finds, and how the end is judged.

    model      Task, Rubric            kinds     the checks, as data
    setup      what is laid out        checks    running checks, the base reward
    suite      loading suites          template  seeded templates
    lint       what cannot fit or work

Does not know how a task is run.
"""
