//! Tensors of the KServe V2 protocol, in JSON and in binary form.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use super::ApiError;

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datatype {
    Bool,
    Unsigned {
        bytes: usize,
    },
    Signed {
        bytes: usize,
    },
    /// 16-bit floats of either kind, which have no JSON form.
    Half,
    Single,
    Double,
    /// Byte strings of any length.
    Bytes,
}

impl Datatype {
    /// Returns the type with this name in the protocol.
    ///
    /// # Errors
    /// Returns 400 for an unknown name.
    pub(crate) fn parse(name: &str) -> Result<Self, ApiError> {
        Ok(match name {
            "BOOL" => Self::Bool,
            "UINT8" => Self::Unsigned { bytes: 1 },
            "UINT16" => Self::Unsigned { bytes: 2 },
            "UINT32" => Self::Unsigned { bytes: 4 },
            "UINT64" => Self::Unsigned { bytes: 8 },
            "INT8" => Self::Signed { bytes: 1 },
            "INT16" => Self::Signed { bytes: 2 },
            "INT32" => Self::Signed { bytes: 4 },
            "INT64" => Self::Signed { bytes: 8 },
            "FP16" | "BF16" => Self::Half,
            "FP32" => Self::Single,
            "FP64" => Self::Double,
            "BYTES" => Self::Bytes,
            _ => return Err(invalid(format!("unknown datatype '{name}'"))),
        })
    }

    /// Returns the size of an element in bytes; `None` if each element has its own size.
    fn element_bytes(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Unsigned { bytes } | Self::Signed { bytes } => Some(bytes),
            Self::Half => Some(2),
            Self::Single => Some(4),
            Self::Double => Some(8),
            Self::Bytes => None,
        }
    }
}

/// Returns the number of elements in a shape.
///
/// # Errors
/// Returns 400 if the number is too large.
pub(crate) fn elements(shape: &[u64]) -> Result<usize, ApiError> {
    let product = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let product = product.and_then(|product| usize::try_from(product).ok());
    product.ok_or_else(|| invalid("the shape is too large"))
}

/// Converts JSON data, nested or flat, to binary. Returns the number of elements and the bytes.
///
/// # Errors
/// Returns 400 if a value is not of this type.
pub(crate) fn encode(datatype: Datatype, data: &Value) -> Result<(usize, Bytes), ApiError> {
    let mut flat = Vec::new();
    flatten(data, &mut flat);
    let mut bytes = BytesMut::with_capacity(flat.len() * datatype.element_bytes().unwrap_or(16));
    for value in &flat {
        let written = put(&mut bytes, datatype, value);
        written.ok_or_else(|| invalid(format!("{value} is not of the tensor's datatype")))?;
    }
    Ok((flat.len(), bytes.freeze()))
}

/// Converts binary data to flat JSON.
///
/// # Errors
/// Returns 400 for data that JSON cannot represent.
pub(crate) fn decode(datatype: Datatype, bytes: &[u8]) -> Result<Value, ApiError> {
    let Some(size) = datatype.element_bytes() else {
        return split_strings(bytes)?.into_iter().map(text).collect();
    };
    bytes.chunks_exact(size).map(|element| number(datatype, element)).collect()
}

/// Returns the number of elements in binary data.
///
/// # Errors
/// Returns 400 if the data ends within an element.
pub(crate) fn count(datatype: Datatype, bytes: &[u8]) -> Result<usize, ApiError> {
    match datatype.element_bytes() {
        Some(size) if bytes.len().is_multiple_of(size) => Ok(bytes.len() / size),
        Some(_) => Err(invalid("the binary data ends within an element")),
        None => Ok(split_strings(bytes)?.len()),
    }
}

fn flatten<'a>(value: &'a Value, flat: &mut Vec<&'a Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flatten(value, flat)),
        value => flat.push(value),
    }
}

fn put(bytes: &mut BytesMut, datatype: Datatype, value: &Value) -> Option<()> {
    match datatype {
        Datatype::Bool => bytes.put_u8(u8::from(value.as_bool()?)),
        Datatype::Unsigned { bytes: size } => {
            let number = value.as_u64().filter(|number| fits(size, *number))?;
            bytes.put_uint_le(number, size);
        }
        Datatype::Signed { bytes: size } => {
            // A number fits if nothing is lost when its upper bits are shifted out and back.
            let spare = 64 - 8 * u32::try_from(size).ok()?;
            let number = value.as_i64().filter(|number| (number << spare) >> spare == *number)?;
            bytes.put_int_le(number, size);
        }
        Datatype::Half => return None,
        #[expect(clippy::cast_possible_truncation, reason = "the client asked for 32 bits")]
        Datatype::Single => bytes.put_f32_le(value.as_f64()? as f32),
        Datatype::Double => bytes.put_f64_le(value.as_f64()?),
        Datatype::Bytes => {
            let text = value.as_str()?;
            bytes.put_u32_le(u32::try_from(text.len()).ok()?);
            bytes.put_slice(text.as_bytes());
        }
    }
    Some(())
}

fn fits(size: usize, number: u64) -> bool {
    // A shift by all 64 bits would overflow.
    size == 8 || number >> (8 * size) == 0
}

fn number(datatype: Datatype, element: &[u8]) -> Result<Value, ApiError> {
    let mut low = [0; 8];
    low[..element.len()].copy_from_slice(element);
    let unsigned = u64::from_le_bytes(low);
    Ok(match datatype {
        Datatype::Bool => Value::from(unsigned != 0),
        Datatype::Unsigned { .. } => Value::from(unsigned),
        Datatype::Signed { bytes } => {
            let spare = 64 - 8 * bytes;
            Value::from((unsigned.cast_signed() << spare) >> spare)
        }
        Datatype::Single => {
            let [one, two, three, four, ..] = low;
            Value::from(f32::from_le_bytes([one, two, three, four]))
        }
        Datatype::Double => Value::from(f64::from_le_bytes(low)),
        Datatype::Half | Datatype::Bytes => {
            return Err(invalid("16-bit floats can only be sent in binary form"));
        }
    })
}

fn split_strings(mut bytes: &[u8]) -> Result<Vec<&[u8]>, ApiError> {
    let mut strings = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let string = rest.get(..length).ok_or_else(|| invalid("a string is cut off"))?;
        strings.push(string);
        bytes = &rest[length..];
    }
    if bytes.is_empty() { Ok(strings) } else { Err(invalid("the length of a string is cut off")) }
}

fn text(bytes: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes);
    text.map(Value::from).map_err(|_| invalid("a string is not UTF-8: ask for binary output"))
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::invalid(message, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks that the JSON data become `bytes`, and that these become equal numbers again.
    fn check(name: &str, data: Value, bytes: &[u8]) {
        let datatype = Datatype::parse(name).unwrap();
        let (elements, encoded) = encode(datatype, &data).unwrap();
        assert_eq!(encoded, bytes, "{name}");
        assert_eq!(count(datatype, bytes).unwrap(), elements, "{name}");
        assert_eq!(decode(datatype, bytes).unwrap(), data, "{name}");
    }

    #[test]
    fn every_datatype_goes_to_binary_and_back() {
        check("BOOL", json!([true, false]), &[1, 0]);
        check("UINT8", json!([255]), &[255]);
        check("UINT16", json!([258]), &[2, 1]);
        check("UINT32", json!([4_294_967_295_u32]), &[255; 4]);
        check("UINT64", json!([u64::MAX]), &[255; 8]);
        check("INT8", json!([-1, 127]), &[255, 127]);
        check("INT16", json!([-2]), &[254, 255]);
        check("INT32", json!([-3]), &[253, 255, 255, 255]);
        check("INT64", json!([i64::MIN]), &[0, 0, 0, 0, 0, 0, 0, 128]);
        check("FP32", json!([1.5]), &1.5_f32.to_le_bytes());
        check("FP64", json!([0.1]), &0.1_f64.to_le_bytes());
        check("BYTES", json!(["ab", ""]), &[2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
    }

    #[test]
    fn nested_arrays_are_flattened() {
        let (elements, bytes) =
            encode(Datatype::Unsigned { bytes: 1 }, &json!([[1, 2], [3, 4]])).unwrap();
        assert_eq!((elements, &bytes[..]), (4, &[1, 2, 3, 4][..]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (name, data) in [
            ("UINT8", json!([256])),
            ("UINT8", json!([-1])),
            ("INT8", json!([128])),
            ("BOOL", json!([1])),
            ("FP16", json!([1.0])),
            ("BYTES", json!([1])),
        ] {
            assert!(encode(Datatype::parse(name).unwrap(), &data).is_err(), "{name} {data}");
        }
        assert!(count(Datatype::Single, &[0; 6]).is_err());
        assert!(count(Datatype::Bytes, &[9, 0, 0, 0, 1]).is_err());
        assert!(count(Datatype::Bytes, &[9, 0]).is_err());
        assert!(decode(Datatype::Bytes, &[1, 0, 0, 0, 0xFF]).is_err());
        assert!(Datatype::parse("COMPLEX64").is_err());
        assert!(elements(&[u64::MAX, 2]).is_err());
    }
}
