//! Options and limits of sockets that the standard library and tokio do not set: keep-alive, the
//! limit of open files, and errors with which a machine reports that it has run out of something.

mod keep_alive;
mod open_files;
mod shortage;

pub use keep_alive::{UNACKNOWLEDGED_MAX, keep_alive, set_up};
pub use open_files::{clients_max, raise_open_files};
pub use shortage::is_shortage;
