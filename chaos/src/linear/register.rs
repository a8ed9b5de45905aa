//! Register with versions: read, write, delete, compare and set.

use serde::{Deserialize, Serialize};

use super::model::Model;

/// Register that is absent at first. Each write gives it a higher version, such as the number of
/// writes or the position of the write in a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// Request to a [`Register`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterInput {
    /// Read of value and version.
    Read,
    /// Write of a new value; `None` deletes.
    Write(Option<u64>),
    /// Write only if the version is `expected`; 0 means that the register was never written.
    CompareAndSet {
        /// Expected version.
        expected: u64,
        /// New value; `None` deletes.
        value: Option<u64>,
    },
}

/// Answer of a [`Register`]. A version is `None` if the object does not report versions.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterOutput {
    /// Answer to a read.
    Value {
        /// Value; `None` if the register is absent.
        value: Option<u64>,
        /// Version of the last write.
        version: Option<u64>,
    },
    /// Answer to a write, or to a compare-and-set that found its version.
    Written {
        /// New version.
        version: Option<u64>,
    },
    /// Answer to a compare-and-set that found another version.
    Mismatch,
}

/// State of a [`Register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisterState {
    /// Value; `None` if the register is absent.
    pub value: Option<u64>,
    /// Version of the last write.
    pub version: Version,
}

/// Knowledge about a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Exact version, known from an answer; 0 before the first write.
    Told(u64),
    /// Some version above this one: the last write's answer had no version or was never seen.
    Above(u64),
}

impl Version {
    /// Returns the exact `version`, or `None` if it contradicts earlier answers.
    fn learn(self, version: u64) -> Option<Self> {
        let fits = match self {
            Self::Told(told) => told == version,
            Self::Above(least) => version > least,
        };
        fits.then_some(Self::Told(version))
    }

    /// Returns the version after one more write, whose answer contained `told`; `None` if that is
    /// not higher.
    fn next(self, told: Option<u64>) -> Option<Self> {
        let (Self::Told(least) | Self::Above(least)) = self;
        match told {
            Some(version) => (version > least).then_some(Self::Told(version)),
            None => Some(Self::Above(least)),
        }
    }
}

impl Model for Register {
    type State = RegisterState;
    type Input = RegisterInput;
    type Output = RegisterOutput;

    fn initial(&self) -> RegisterState {
        RegisterState { value: None, version: Version::Told(0) }
    }

    fn step(
        &self,
        state: &RegisterState,
        input: &RegisterInput,
        output: Option<&RegisterOutput>,
    ) -> Option<RegisterState> {
        let RegisterState { value: held, version } = *state;
        match (*input, output.copied()) {
            (RegisterInput::Read, None) => Some(*state),
            (RegisterInput::Read, Some(RegisterOutput::Value { value, version: told })) => {
                let learned = told.map_or(Some(version), |told| version.learn(told))?;
                (value == held).then_some(RegisterState { value, version: learned })
            }
            (RegisterInput::Write(value), None) => {
                Some(RegisterState { value, version: version.next(None)? })
            }
            (RegisterInput::Write(value), Some(RegisterOutput::Written { version: told })) => {
                Some(RegisterState { value, version: version.next(told)? })
            }
            // The answer is unknown. A compare-and-set that found another version had no effect,
            // which the search covers as an operation that never took effect.
            (RegisterInput::CompareAndSet { expected, value }, None) => {
                let found = version.learn(expected)?;
                Some(RegisterState { value, version: found.next(None)? })
            }
            (
                RegisterInput::CompareAndSet { expected, value },
                Some(RegisterOutput::Written { version: told }),
            ) => {
                let found = version.learn(expected)?;
                Some(RegisterState { value, version: found.next(told)? })
            }
            // An unknown version may well differ from the expected one.
            (RegisterInput::CompareAndSet { expected, .. }, Some(RegisterOutput::Mismatch)) => {
                (version != Version::Told(expected)).then_some(*state)
            }
            _ => None,
        }
    }

    fn order_hint(&self, output: &RegisterOutput) -> Option<u64> {
        match output {
            RegisterOutput::Written { version } | RegisterOutput::Value { version, .. } => *version,
            RegisterOutput::Mismatch => None,
        }
    }

    fn only_reads(&self, input: &RegisterInput) -> bool {
        *input == RegisterInput::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(value: u64, version: Version) -> RegisterState {
        RegisterState { value: Some(value), version }
    }

    #[test]
    fn answers_fit_only_their_state() {
        let value = |value, version| RegisterOutput::Value { value: Some(value), version };
        let written = |version| RegisterOutput::Written { version };
        let set = |expected| RegisterInput::CompareAndSet { expected, value: Some(2) };
        let read = RegisterInput::Read;
        let write = RegisterInput::Write(Some(2));
        let told = state(1, Version::Told(5));
        let above = state(1, Version::Above(5));
        let cases = [
            (told, read, Some(value(1, Some(5))), Some(told)),
            (told, read, Some(value(1, None)), Some(told)),
            (told, read, Some(value(1, Some(6))), None),
            (told, read, Some(value(2, Some(5))), None),
            (told, read, None, Some(told)),
            (above, read, Some(value(1, Some(9))), Some(state(1, Version::Told(9)))),
            (above, read, Some(value(1, Some(5))), None),
            (told, write, Some(written(Some(6))), Some(state(2, Version::Told(6)))),
            (told, write, Some(written(Some(5))), None),
            (told, write, Some(written(None)), Some(state(2, Version::Above(5)))),
            (told, write, None, Some(state(2, Version::Above(5)))),
            (told, set(5), Some(written(Some(8))), Some(state(2, Version::Told(8)))),
            (told, set(4), Some(written(Some(8))), None),
            (told, set(5), Some(RegisterOutput::Mismatch), None),
            (told, set(4), Some(RegisterOutput::Mismatch), Some(told)),
            (told, set(4), None, None),
            (told, set(5), None, Some(state(2, Version::Above(5)))),
            (above, set(7), Some(written(Some(8))), Some(state(2, Version::Told(8)))),
            (above, set(7), Some(written(Some(7))), None),
            (above, set(7), Some(RegisterOutput::Mismatch), Some(above)),
            (told, read, Some(RegisterOutput::Mismatch), None),
            (told, write, Some(RegisterOutput::Mismatch), None),
        ];
        for (before, input, output, after) in cases {
            assert_eq!(
                Register.step(&before, &input, output.as_ref()),
                after,
                "{before:?} {input:?} {output:?}"
            );
        }
    }

    #[test]
    fn a_first_write_expects_version_zero() {
        let first = RegisterInput::CompareAndSet { expected: 0, value: Some(1) };
        let written = RegisterOutput::Written { version: Some(1) };
        let after = Register.step(&Register.initial(), &first, Some(&written)).unwrap();
        assert_eq!(after, state(1, Version::Told(1)));
        assert_eq!(Register.step(&after, &first, Some(&written)), None);
    }
}
