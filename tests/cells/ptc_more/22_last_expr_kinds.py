1, 2
# %%
x = y = 5
# %%
x if x > 3 else None
# %%
None
# %%
print("only print")
# %%
[i for i in range(30)]
# %%
"text" ; 'second'
# %%
lambda: 0
# %%
x += 1
# %%
(z := x * 2)
# %%
z
# %%
{"a": {"b": [1, 2, {"c": None}]}}
# %%
if x: 42
# %%
# only a comment
# %%
"""docstring only"""
# %%
not x
