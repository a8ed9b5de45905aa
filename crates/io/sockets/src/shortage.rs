//! Errors with which the node's own machine reports that it has run out of something.

use std::io;

use rustix::io::Errno;

/// Errors for lack of something that this machine has: file descriptors (of the process, of the
/// system), memory for sockets, ports towards one address, places in the kernel's event queue.
const SHORTAGES: [Errno; 6] =
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::ADDRNOTAVAIL, Errno::NOSPC];

/// Returns true if opening a connection failed for lack of something that this machine has. Such a
/// failure does not concern the server.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| SHORTAGES.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_this_machine_are_told_from_those_of_a_server() {
        for errno in SHORTAGES {
            assert!(is_shortage(&errno.into()), "{errno}");
        }
        for errno in [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::CONNRESET] {
            assert!(!is_shortage(&errno.into()), "{errno}");
        }
        assert!(!is_shortage(&io::Error::other("too many open files")));
    }
}
