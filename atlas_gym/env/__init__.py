"""The environment: text to actions, dispatch, observations, checks at the end; Gymnasium shells.

Does not know judges or models. Import its modules by name: this package imports nothing, so that
registering the environment stays cheap.
"""
