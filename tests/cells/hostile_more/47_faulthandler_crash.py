import faulthandler, ctypes
try: faulthandler.enable()
except Exception as e: print(e)
faulthandler.dump_traceback_later(0.1, exit=True)
ctypes.string_at(1)
