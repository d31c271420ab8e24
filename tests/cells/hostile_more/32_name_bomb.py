raise type("N\ud800\x00" * 10**6, (Exception,), {})("m" * 10**7)
