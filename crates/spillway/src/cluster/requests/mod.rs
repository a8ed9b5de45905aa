//! Requests: those that ended, and those that could come.

pub(crate) mod explain;
pub(crate) mod explanation;
pub(crate) mod request;
pub(crate) mod tail;
pub(crate) mod trie;
pub(crate) mod words;
