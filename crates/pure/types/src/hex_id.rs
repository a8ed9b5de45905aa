//! Texts of ids that are bytes.

/// Implements the texts of an id of a fixed number of bytes: hexadecimal digits for people and in
/// JSON, the bytes elsewhere. The id has `from_bytes` and `to_bytes`.
///
/// A crate that uses this macro needs `serde` and `hex` among its own dependencies.
#[macro_export]
macro_rules! hex_id {
    ($name:ident of $bytes:literal) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&hex::encode(self.to_bytes()))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.to_bytes().serialize(serializer)
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if !deserializer.is_human_readable() {
                    return serde::Deserialize::deserialize(deserializer).map(Self::from_bytes);
                }
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                let mut bytes = [0; $bytes];
                hex::decode_to_slice(&text, &mut bytes).map_err(|_| {
                    let wrong = concat!($bytes, " bytes in hexadecimal belong here");
                    <D::Error as serde::de::Error>::custom(wrong)
                })?;
                Ok(Self::from_bytes(bytes))
            }
        }
    };
}
