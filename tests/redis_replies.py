#!/usr/bin/env python3
"""Writes redis_replies.txt anew: what a real Redis answers to the commands that are listed here.

Needs redis-server 7.0, the release whose commands ratchet says that it answers (Debian 12: apt-get install redis-server):

    tests/redis_replies.py > tests/redis_replies.txt

Each line has the server's mode (alone, closed to those without a password, or a cluster of one node), the version of the protocol, the command, a tab, and the reply. A
blank line begins another connection.
"""
import socket
import subprocess
import sys
import tempfile
import time

KEYS = """
PING
PING hello
ECHO hello
GET book:1
INCR book:1
GET book:1
INCRBY book:1 5
INCRBY book:1 0
INCRBY book:7 0
MGET book:1 book:9
EXISTS book:1 book:9
TYPE book:1
TYPE book:9
SETNX book:2 0
SETNX book:1 5
SETNX book:3 100
SET book:1 5 NX
SET book:4 5 NX
SET book:5 0
SET book:1 100
SELECT 0
UNWATCH
CLIENT ID
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
INFO
HELLO
COMMAND COUNT
COMMAND INFO nosuch
COMMAND DOCS get
COMMAND DOCS ping client
NOSUCH
GET
SETNX book:1
CLIENT NOSUCH
CLIENT SETNAME
COMMAND NOSUCH
AUTH secret
HELLO 4
QUIT

EXEC
DISCARD
MULTI x
MULTI
MULTI
WATCH book:1
GET book:1
INCR book:1
INCRBY book:1 many
PING
EXEC
MULTI
EXEC
MULTI
NOSUCH
INCR book:1
EXEC
MULTI
CLIENT NOSUCH
EXEC
MULTI
EXEC now
EXEC
MULTI
DISCARD now
EXEC
MULTI
INCR book:1
DISCARD
EXEC
MULTI
AUTH secret
EXEC
MULTI
HELLO 2
GET book:9
HELLO 3
GET book:9
HELLO 4
EXEC
GET book:9
MULTI
INCR book:1
RESET
EXEC
MULTI
INCR book:1
QUIT
"""

COMMANDS = """
incr incrby get mget set setnx exists type multi exec discard watch unwatch ping echo hello auth select readonly readwrite quit
reset info client cluster command acl
""".split()

# The commands to a server that wants a password, and whose user alice may get keys that begin with book: alone.
CLOSED = """
PING
GET book:1
GET
HELLO
HELLO 3
HELLO 3 SETNAME x
HELLO 4
AUTH
AUTH a b c d
AUTH wrong
AUTH alice wrong
HELLO 3 AUTH alice wrong
HELLO 3 AUTH alice
HELLO 3 NOSUCH
AUTH alice token-of-alice
GET book:1
GET other:1
MGET book:1 other:1
QUIT
"""

CLUSTER = """
CLUSTER SLOTS
CLUSTER SHARDS
CLUSTER NODES
CLUSTER INFO
CLUSTER MYID
CLUSTER KEYSLOT book:1
CLUSTER NOSUCH
READONLY
READWRITE
SELECT 1
"""


def reply(file):
    line = file.readline()
    text = line
    if line[:1] in b"$=" and line[1:3] != b"-1":
        text += file.read(int(line[1:]) + 2)
    elif line[:1] in b"*~%":
        items = int(line[1:]) * (2 if line[:1] == b"%" else 1)
        for _ in range(items):
            text += reply(file)
    return text


def connect(port):
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def free_port():
    # A cluster's node also listens on the port 10 000 above.
    for port in range(21000, 31000):
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10000))
                return port
            except OSError:
                pass
    sys.exit("no port is free")


def record(mode, version, conversations, port):
    for conversation in conversations.strip().split("\n\n"):
        print()
        with connect(port) as stream:
            file = stream.makefile("rb")
            commands = conversation.split("\n")
            if version == 3:
                commands.insert(0, "HELLO 3")
            for command in commands:
                stream.sendall(command.encode() + b"\r\n")
                shown = reply(file).decode("ascii").replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
                print(f"{mode} {version} {command}\t{shown}")


def main():
    print("# Made by redis_replies.py, with", subprocess.check_output(["redis-server", "--version"], text=True).split(" sha")[0])
    with tempfile.TemporaryDirectory() as directory:
        for mode in ["alone", "closed", "cluster"]:
            port = free_port()
            options = {
                "alone": [],
                "closed": ["--requirepass", "secret", *"--user alice on >token-of-alice ~book:* +get +mget".split()],
                "cluster": ["--cluster-enabled", "yes"],
            }[mode]
            command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", *options]
            server = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
            try:
                for version in [2, 3]:
                    if mode == "closed":
                        # A caller that is not let in speaks the version that a connection begins with.
                        if version == 2:
                            record(mode, version, CLOSED, port)
                        continue
                    with connect(port) as stream:
                        stream.sendall(b"FLUSHALL\r\n")
                        reply(stream.makefile("rb"))
                    if mode == "alone":
                        info = "\n".join(f"COMMAND INFO {name}" for name in COMMANDS)
                        record(mode, version, KEYS + "\n" + info, port)
                        continue
                    with connect(port) as stream:
                        file = stream.makefile("rb")
                        stream.sendall(b"CLUSTER ADDSLOTSRANGE 0 16383\r\n")
                        reply(file)
                        while True:
                            stream.sendall(b"CLUSTER INFO\r\n")
                            if b"cluster_state:ok" in reply(file):
                                break
                            time.sleep(0.05)
                    record(mode, version, CLUSTER, port)
            finally:
                server.terminate()
                server.wait()


main()
