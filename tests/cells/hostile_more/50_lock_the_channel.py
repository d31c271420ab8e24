import gc
ch = next(o for o in gc.get_objects() if type(o).__name__ == "Channel")
ch._lock.acquire()
MCPServer("Math").add(1, 2)
