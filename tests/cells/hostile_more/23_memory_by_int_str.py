import sys
sys.set_int_max_str_digits(0)
x = 10 ** (10 ** 7)
print(len(str(x)))
