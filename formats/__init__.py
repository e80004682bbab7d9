"""The on-disk formats of a RocketMQ store: bytes to values and back, nothing else.

One module per structure. Each layout is declared once, in construct; sizes, NumPy dtypes and help texts are
derived from that declaration. Nothing here opens a file, prints or logs. All binary integers are big-endian.
"""
