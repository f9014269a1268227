#!/usr/bin/env python3
"""What a link carries between two plain TCP sockets: tcp.py serve ADDRESS, and on the other host tcp.py ADDRESS [MEGABYTES],
which prints payload bytes a second (of the second half, when the window is open) and half the shortest round trip of a byte."""
import socket
import sys
import time

PORT = 29400
CHUNK = 1 << 16


def open_socket(s):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def receive(s, left):
    while left:
        got = len(s.recv(min(left, CHUNK)))
        if not got:
            raise SystemExit("the other side has gone")
        left -= got


def serve(address):
    listener = socket.create_server((address, PORT))
    s = open_socket(listener.accept()[0])
    half = int.from_bytes(s.recv(8), "little")
    for _ in range(100):
        receive(s, 1)
        s.sendall(b"x")
    receive(s, half)
    begin = time.perf_counter()
    receive(s, half)
    s.sendall(str(half / (time.perf_counter() - begin)).encode())


def ask(address, megabytes):
    half = int(megabytes * 1e6) // 2
    for attempt in range(50):
        try:
            s = open_socket(socket.create_connection((address, PORT)))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    s.sendall(half.to_bytes(8, "little"))
    shortest = 1.0
    for _ in range(100):
        begin = time.perf_counter()
        s.sendall(b"x")
        receive(s, 1)
        shortest = min(shortest, time.perf_counter() - begin)
    piece = bytes(CHUNK)
    for at in range(0, 2 * half, CHUNK):
        s.sendall(piece[: min(CHUNK, 2 * half - at)])
    print(f"{float(s.recv(64)):.0f} {shortest / 2:.6f}")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30)
