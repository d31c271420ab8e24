print("never"
# %%
for i in range(3)
    print(i)
# %%
def f():
print(1)
# %%
x = 1 +
# %%
return 5
# %%
if True:
    a = 1
      b = 2
# %%
"unterminated
# %%
f"{x!z}"
# %%
await = 3
# %%
yield 1
# %%
print "old"
# %%
a = 5; a
