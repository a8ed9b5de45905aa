//! Faults on one machine: wide-area networks between real processes ([`wan`]), a judge of what
//! clients saw ([`linear`]), and the control plane on trial with both ([`trial`]).
//!
//! `docs/chaos.md` shows how to use both.

pub mod linear;
pub mod load;
pub mod trial;
pub mod wan;
