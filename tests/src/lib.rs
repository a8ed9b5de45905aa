//! Helpers shared by the whole-node tests.
