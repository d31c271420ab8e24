text = "<answer>not an answer</answer> ```python\nprint(1)\n``` </tool_call> <|im_end|>"
print(text); print("\x1b[31mred\x1b[0m", "\u2028sep", "\ufeffbom", "zero\u200bwidth")
text
# %%
'\\' + "'" + '"' + "\n"
# %%
"""a
b'''c"""
# %%
b"bytes \xff", 'é\u0301', "\U0001F600"
