"""What the model sees, as labelled token ids: tokenizers, chat templates, the ledger, the budget.

Owns the rule that every token of a conversation has exactly one label and that their counts sum to
its length. Does not know what any of the text says.
"""
