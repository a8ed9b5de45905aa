//! Location of clients by IP address, and DNS answers that lead them to a near region. Pure:
//! databases and DNS messages come in as bytes, time as an argument.

mod client_location;
pub mod dns;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod locator;
mod rules;
mod towns;
#[cfg(any(test, fuzzing, feature = "writer"))]
mod writer;

pub use client_location::{ClientLocation, Coordinates};
pub use locator::{Database, Locator, LocatorError};
pub use rules::{ClientBound, ClientRule, ClientRules, UnknownClients};
pub use towns::town_of;
#[cfg(any(test, fuzzing, feature = "writer"))]
pub use writer::DatabaseWriter;
