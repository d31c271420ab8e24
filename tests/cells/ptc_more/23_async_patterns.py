import asyncio
shop = MCPServer("Shop")
async def fetch(n, sem):
    async with sem:
        await asyncio.sleep(0)
        return await asyncio.to_thread(shop.get_order, f"ORD-{n}")
async def main():
    sem = asyncio.Semaphore(2)
    rs = await asyncio.gather(*(fetch(n, sem) for n in range(1000, 1005)), return_exceptions=True)
    print([r["order_id"] if isinstance(r, dict) else repr(r) for r in rs])
    q = asyncio.Queue()
    async def producer():
        for i in range(3): await q.put(i)
        await q.put(None)
    async def consumer():
        out = []
        while (i := await q.get()) is not None: out.append(i * i)
        return out
    _, got = await asyncio.gather(producer(), consumer())
    try:
        async with asyncio.timeout(0.01): await asyncio.sleep(5)
    except TimeoutError: print("timeout")
    async with asyncio.TaskGroup() as tg: t = tg.create_task(asyncio.sleep(0, "done"))
    return got, t.result()
print(asyncio.run(main()))
async def ticker(n):
    for i in range(n):
        yield i
        await asyncio.sleep(0)
async def use(): return [i async for i in ticker(3)]
asyncio.run(use())
