import asyncio
async def double(x):
    await asyncio.sleep(0)
    return x * 2
r = await double(4)
print(r)
async with asyncio.Lock() as l: print(l)
out = []
async def agen():
    for i in range(2): yield i
async for i in agen(): out.append(i)
print(out, [i async for i in agen()])
try:
    await asyncio.wait_for(asyncio.sleep(9), 0.01)
except asyncio.TimeoutError: print("late")
await asyncio.gather(double(1), double(2))
# %%
loop_result = asyncio.run(double(8))
loop_result
