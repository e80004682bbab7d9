"""The on-disk formats of a RocketMQ store: bytes to values and back, nothing else.

A module has the structures of one noun. Each layout is declared once, in construct; sizes, NumPy dtypes and help texts
are derived from that declaration. Nothing here opens a file, prints or logs. All binary integers are big-endian.
"""
