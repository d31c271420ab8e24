y = 10 ** 10 ** 8
print(y.bit_length())
