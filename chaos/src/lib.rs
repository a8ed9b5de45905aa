//! Faults on one machine: wide-area networks between real processes ([`wan`]), a linearizability
//! checker ([`linear`]), and trials of the control plane ([`trial`]) and the data path ([`load`]).
//!
//! `docs/guides/chaos.md` shows how to use them.

pub mod linear;
pub mod load;
pub mod plan;
pub mod trial;
pub mod wan;
