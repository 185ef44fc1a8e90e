"""Runs a command on a terminal of its own and prints what it wrote there.

    terminal.py COLUMNS KEYS COMMAND...      KEYS are typed when it wrote WORD=... (environment) or anything
"""

import fcntl
import os
import pty
import signal
import struct
import sys
import termios

columns, keys, command = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3:]
awaited = os.environ.pop("WORD", "").encode()
# Ends a command that never writes the awaited word.
signal.alarm(600)
pid, terminal = pty.fork()
if pid == 0:
    # Its size is known before the command asks for it.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    os.execvp(command[0], command)
written = b""
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    written += part
    if keys and awaited in written:
        os.write(terminal, keys)
        keys = b""
status = os.waitpid(pid, 0)[1]
sys.stdout.buffer.write(written)
sys.exit(os.WEXITSTATUS(status))
