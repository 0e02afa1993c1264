"""The NEFF cache: one file per graph and shape signature, shared by processes, users and hosts.

In: key parts and NEFF bytes. Out: NEFF bytes, or the reason for a miss. Invariant: a defect of the
disk, of another process or of an entry costs a compile at most; it never stops the program.
"""
