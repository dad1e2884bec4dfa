"""Lets runs that are cut off from the network reach the services on the machine's loopback device.

Loaded by path beside `server.py`; standard library only, syntax of Python 3.8. Runs have a network
namespace, and with it a loopback device of their own. A process that stays outside accepts what
connects to a port there and connects to the same port of the real loopback device. Nothing but
the ports that are listened at when it starts can be reached.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import signal
import socket
import threading
from typing import Any

_LISTENING = "0A"
_LOCAL = {
    "tcp": re.compile(r"([0-9A-F]{6}7F|0{8})$"),
    "tcp6": re.compile(r"(0{24}01000000|0{32}|0{16}FFFF0000[0-9A-F]{6}7F)$"),
}
_PROXY = re.compile(r"(?i)[a-z]+_proxy$")
_MOST = 100


def ports() -> list[tuple[int, int]]:
    """(address family, port) that somebody listens at on this machine's loopback device.

    Proxies that the environment names are left out: they would lead out to the network.
    """
    found: dict[tuple[int, int], None] = {}
    proxies = {
        int(port)
        for name, value in os.environ.items()
        if _PROXY.match(name)
        for port in re.findall(r":(\d{1,5})(?:/|$)", value)
    }
    for table, local in _LOCAL.items():
        family = socket.AF_INET if table == "tcp" else socket.AF_INET6
        with contextlib.suppress(OSError), open("/proc/net/" + table) as file:
            for line in file.readlines()[1:]:
                words = line.split()
                address, _, port = words[1].partition(":")
                if words[3] == _LISTENING and local.match(address) and int(port, 16) not in proxies:
                    found[int(family), int(port, 16)] = None
                    if table == "tcp6" and set(address) == {"0"}:  # answers both families
                        found[int(socket.AF_INET), int(port, 16)] = None
    return list(found)[:_MOST]


class Relay:
    """A process that stays in the network that this one is about to leave."""

    def __init__(self, guard: Any) -> None:
        self.ports = ports()
        self.ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.ours.close()
            os.setsid()
            guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
            with contextlib.suppress(BaseException):
                _serve(theirs)
            os._exit(0)
        theirs.close()

    def open(self) -> list[int]:
        """Listens in the present network on behalf of the process; the ports that it can."""
        opened: list[int] = []
        sockets: list[socket.socket] = []
        for family, port in self.ports:
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
                sock.listen(64)
            except OSError:
                sock.close()
                continue
            sockets.append(sock)
            opened.append(port)
        descriptors = array.array("i", [sock.fileno() for sock in sockets])
        if sockets:
            data = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            self.ours.sendmsg([b"x"], data)
        for sock in sockets:
            sock.close()
        self.ours.close()
        return opened


def _serve(channel: socket.socket) -> None:
    size = array.array("i").itemsize
    _, data, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(_MOST * size))
    channel.close()
    threads = []
    for _, _, raw in data:
        descriptors = array.array("i")
        descriptors.frombytes(raw[: len(raw) - len(raw) % size])
        for number in descriptors:
            sock = socket.socket(fileno=number)
            threads.append(threading.Thread(target=_accept, args=(sock,), daemon=True))
            threads[-1].start()
    for thread in threads:
        thread.join()


def _accept(listener: socket.socket) -> None:
    while True:
        inner, _ = listener.accept()
        try:
            outer = socket.create_connection(listener.getsockname()[:2], 5)
            outer.settimeout(None)
        except OSError:
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = source.recv(1 << 16)
            if not data:
                break
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
