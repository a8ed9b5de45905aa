//! Messages that only the tests of this crate send.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DecodeError, Wire, decode_payload};

/// A message with one of each type that messages consist of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) count: u32,
    pub(crate) big: u64,
    pub(crate) signed: i32,
    pub(crate) share: f32,
    pub(crate) text: String,
    pub(crate) maybe: Option<u16>,
    pub(crate) choice: Choice,
    pub(crate) list: Vec<(u8, String)>,
    pub(crate) map: BTreeMap<String, u32>,
    pub(crate) id: [u8; 4],
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Choice {
    #[default]
    Nothing,
    One(u64),
    Two(u8, u8),
    Named {
        name: String,
    },
}

impl Note {
    pub(crate) fn sample() -> Self {
        Self {
            count: 7,
            big: 1 << 40,
            signed: -3,
            share: 0.25,
            text: "Größe".to_owned(),
            maybe: Some(300),
            choice: Choice::Named { name: "n".to_owned() },
            list: vec![(1, "a".to_owned()), (2, String::new())],
            map: [("k".to_owned(), 9)].into(),
            id: [0xde, 0xad, 0xbe, 0xef],
        }
    }
}

impl Wire for Note {
    const KIND: u16 = 0x7f01;
    const VERSION: u16 = 2;
    const BYTES_MAX: usize = 4096;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match version {
            1 => Ok(decode_payload::<NoteV1>(payload)?.into()),
            found => Err(DecodeError::Version { kind: Self::KIND, found, newest: Self::VERSION }),
        }
    }
}

/// The first version of [`Note`], with only a count and a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NoteV1 {
    pub(crate) count: u32,
    pub(crate) text: String,
}

impl Wire for NoteV1 {
    const KIND: u16 = Note::KIND;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = Note::BYTES_MAX;
}

impl From<NoteV1> for Note {
    fn from(old: NoteV1) -> Self {
        Self { count: old.count, text: old.text, ..Self::default() }
    }
}
