//! Encoder and decoder of any type that a description in XDR declares (RFC 4506), without the types that the
//! descriptions of this repository do not use: strings, floating point, quadruple, and nested declarations.
//!
//! A value is JSON: a structure is an object, an enum the name of its member, opaque data hexadecimal digits, a union an
//! object of its discriminant and its arm, and a linked list an array.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// An opaque field with XDR inside.
struct Content {
    /// The field that tells the type of the content.
    tag: &'static str,
    /// The opaque field.
    field: &'static str,
    /// The union of the types.
    union: &'static str,
    /// Whether the content has all octets of the field.
    is_whole: bool,
    /// Whether a field without octets has no content.
    may_be_empty: bool,
}

const CONTENTS: [Content; 3] = [
    Content {
        tag: "rdma_opttype",
        field: "rdma_optinfo",
        union: "optinfo",
        is_whole: true,
        may_be_empty: false,
    },
    Content {
        tag: "xchv_which",
        field: "xchv_data",
        union: "xchv_value",
        is_whole: false,
        may_be_empty: false,
    },
    Content {
        tag: "rdma_which",
        field: "rdma_data",
        union: "rdma_value",
        is_whole: false,
        may_be_empty: true,
    },
];

/// Constants and types of a description.
#[derive(Default)]
pub(crate) struct Description {
    /// Constants, members of enums among them.
    pub(crate) constants: BTreeMap<String, u32>,
    pub(crate) types: BTreeMap<String, Type>,
}

pub(crate) enum Type {
    Enum(Vec<(String, u32)>),
    Struct(Vec<Member>),
    /// The discriminant, and the arm of each value; that without a value is the default.
    Union(Member, Vec<(Option<u32>, Member)>),
    Alias(Member),
}

#[derive(Clone)]
pub(crate) struct Member {
    name: String,
    of: String,
    count: Count,
}

#[derive(Clone, Copy)]
enum Count {
    One,
    Optional,
    Exactly(u32),
    UpTo(u32),
}

/// The tokens of a description, without comments.
pub(crate) fn tokens(mut text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    while let Some(first) = text.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = if text.starts_with("/*") {
            text.find("*/").expect("a comment ends") + 2
        } else if is_word(first) {
            let len = text.find(|c| !is_word(c)).unwrap_or(text.len());
            tokens.push(text[..len].to_owned());
            len
        } else {
            tokens.extend((!first.is_whitespace()).then(|| first.to_string()));
            first.len_utf8()
        };
        text = &text[len..];
    }
    tokens
}

/// The rest of the tokens of a description, and the constants before them.
struct Parser<'a> {
    tokens: std::slice::Iter<'a, String>,
    constants: BTreeMap<String, u32>,
}

impl Parser<'_> {
    fn next(&mut self) -> String {
        self.tokens.next().expect("a declaration ends").clone()
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_next = self
            .tokens
            .as_slice()
            .first()
            .is_some_and(|next| next == token);
        if is_next {
            self.next();
        }
        is_next
    }

    fn expect(&mut self, token: &str) {
        let next = self.next();
        assert_eq!(next, token, "before {:?}", self.tokens.as_slice().first());
    }

    fn number(&mut self) -> u32 {
        let token = self.next();
        let known = self.constants.get(&token).copied();
        known.unwrap_or_else(|| number(&token).unwrap_or_else(|| panic!("{token} is no number")))
    }

    fn constant(&mut self) -> (String, u32) {
        let name = self.next();
        self.expect("=");
        let value = self.number();
        let before = self.constants.insert(name.clone(), value);
        assert!(before.is_none(), "{name} is declared twice");
        (name, value)
    }

    fn member(&mut self) -> Member {
        let mut of = self.next();
        if of == "unsigned" {
            of = format!("unsigned {}", self.next());
        }
        let mut count = if self.takes("*") {
            Count::Optional
        } else {
            Count::One
        };
        let name = if of == "void" {
            String::new()
        } else {
            self.next()
        };
        if self.takes("[") {
            count = Count::Exactly(self.number());
            self.expect("]");
        } else if self.takes("<") {
            count = Count::UpTo(u32::MAX);
            if !self.takes(">") {
                count = Count::UpTo(self.number());
                self.expect(">");
            }
        }
        Member { name, of, count }
    }

    fn enumeration(&mut self) -> Type {
        let mut members = Vec::new();
        self.expect("{");
        loop {
            members.push(self.constant());
            if !self.takes(",") {
                break;
            }
        }
        self.expect("}");
        Type::Enum(members)
    }

    fn structure(&mut self) -> Type {
        let mut members = Vec::new();
        self.expect("{");
        while !self.takes("}") {
            members.push(self.member());
            self.expect(";");
        }
        Type::Struct(members)
    }

    fn union(&mut self) -> Type {
        self.expect("switch");
        self.expect("(");
        let on = self.member();
        self.expect(")");
        self.expect("{");
        let (mut arms, mut cases) = (Vec::new(), Vec::new());
        while !self.takes("}") {
            if self.takes("case") {
                cases.push(Some(self.number()));
                self.expect(":");
            } else if self.takes("default") {
                cases.push(None);
                self.expect(":");
            } else {
                let member = self.member();
                self.expect(";");
                arms.extend(cases.drain(..).map(|case| (case, member.clone())));
            }
        }
        Type::Union(on, arms)
    }
}

fn number(token: &str) -> Option<u32> {
    match token.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => token.parse().ok(),
    }
}

impl Description {
    /// # Panics
    ///
    /// If the tokens are not a description.
    pub(crate) fn parse(tokens: &[String]) -> Self {
        let mut types = BTreeMap::new();
        let mut parser = Parser {
            tokens: tokens.iter(),
            constants: BTreeMap::new(),
        };
        while let Some(kind) = parser.tokens.next() {
            let (name, declared) = match kind.as_str() {
                "const" => {
                    parser.constant();
                    parser.expect(";");
                    continue;
                }
                "typedef" => {
                    let member = parser.member();
                    (member.name.clone(), Type::Alias(member))
                }
                "enum" => (parser.next(), parser.enumeration()),
                "struct" => (parser.next(), parser.structure()),
                "union" => (parser.next(), parser.union()),
                other => panic!("{other} begins no declaration"),
            };
            parser.expect(";");
            let before = types.insert(name.clone(), declared);
            assert!(before.is_none(), "{name} is declared twice");
        }
        let constants = parser.constants;
        Self { constants, types }
    }

    /// Decodes a value of this type and the contents of its opaque fields, and encodes each again. Also returns the
    /// octets behind it. `None` if the octets are not those of a value.
    pub(crate) fn decode<'a>(&self, of: &str, octets: &'a [u8]) -> Option<(Value, &'a [u8])> {
        let mut rest = octets;
        let mut value = self.read_same(of, &mut rest)?;
        self.open(&mut value)?;
        Some((value, rest))
    }

    /// Decodes a value, and encodes it again.
    fn read_same(&self, of: &str, octets: &mut &[u8]) -> Option<Value> {
        let before = *octets;
        let value = self.read(of, octets)?;
        let mut again = Vec::new();
        self.write(of, &value, &mut again)?;
        assert_eq!(
            again,
            before[..before.len() - octets.len()],
            "{value} is encoded otherwise"
        );
        Some(value)
    }

    /// Adds the contents of opaque fields.
    fn open(&self, value: &mut Value) -> Option<()> {
        match value {
            Value::Array(array) => array.iter_mut().try_for_each(|value| self.open(value)),
            Value::Object(object) => {
                for Content {
                    tag,
                    field,
                    union,
                    is_whole,
                    may_be_empty,
                } in CONTENTS
                {
                    let Some(which) = object.get(tag).and_then(Value::as_u64) else {
                        continue;
                    };
                    let Some(Type::Union(_, arms)) = self.types.get(union) else {
                        panic!("{union} is no union");
                    };
                    let arm = arm(arms, u32::try_from(which).ok()?)?;
                    let octets = octets(object[field].as_str()?);
                    let is_default = may_be_empty && octets.is_empty();
                    if arm.of != "void" && !is_default {
                        let mut rest = octets.as_slice();
                        let content = self.read_same(&arm.of, &mut rest)?;
                        if is_whole && !rest.is_empty() {
                            return None;
                        }
                        object.insert(union.to_owned(), json!({ &arm.name: content }));
                    }
                }
                object.values_mut().try_for_each(|value| self.open(value))
            }
            _ => Some(()),
        }
    }

    /// The elements of a linked list: those of a structure of two members of which the second leads to the next.
    fn linked(&self, of: &str) -> Option<&Member> {
        match self.types.get(of)? {
            Type::Struct(members) => match members.as_slice() {
                [
                    entry,
                    Member {
                        of: next,
                        count: Count::Optional,
                        ..
                    },
                ] if next == of => Some(entry),
                _ => None,
            },
            _ => None,
        }
    }

    fn read(&self, of: &str, octets: &mut &[u8]) -> Option<Value> {
        Some(match (of, self.types.get(of)) {
            ("unsigned int", _) => json!(word(octets)?),
            ("unsigned hyper", _) => {
                json!(u64::from(word(octets)?) << 32 | u64::from(word(octets)?))
            }
            ("bool", _) => json!(boolean(octets)?),
            (_, Some(Type::Alias(member))) => self.read_member(member, octets)?,
            (_, Some(Type::Enum(members))) => {
                let value = word(octets)?;
                json!(members.iter().find(|member| member.1 == value)?.0)
            }
            (_, Some(Type::Struct(members))) => {
                let fields = members
                    .iter()
                    .map(|member| Some((member.name.clone(), self.read_member(member, octets)?)));
                Value::Object(fields.collect::<Option<Map<_, _>>>()?)
            }
            (_, Some(Type::Union(on, arms))) => {
                let which = word(&mut &**octets)?;
                let mut fields = Map::new();
                fields.insert(on.name.clone(), self.read_member(on, octets)?);
                let arm = arm(arms, which)?;
                if arm.of != "void" {
                    fields.insert(arm.name.clone(), self.read_member(arm, octets)?);
                }
                Value::Object(fields)
            }
            (other, None) => panic!("{other} is not declared"),
        })
    }

    fn read_member(&self, member: &Member, octets: &mut &[u8]) -> Option<Value> {
        let of = member.of.as_str();
        if of == "opaque" {
            let len = match member.count {
                Count::Exactly(len) => len,
                Count::UpTo(most) => word(octets).filter(|len| *len <= most)?,
                Count::One | Count::Optional => panic!("{} has no length", member.name),
            } as usize;
            let data = take(octets, len)?;
            let padding = take(octets, len.next_multiple_of(4) - len)?;
            return padding
                .iter()
                .all(|octet| *octet == 0)
                .then(|| json!(digits(data)));
        }
        let read = |octets: &mut &[u8]| self.read(of, octets);
        match member.count {
            Count::One => read(octets),
            Count::Optional => match self.linked(of) {
                Some(entry) => {
                    let mut entries = Vec::new();
                    while boolean(octets)? {
                        entries.push(self.read_member(entry, octets)?);
                    }
                    Some(Value::Array(entries))
                }
                None if boolean(octets)? => read(octets),
                None => Some(Value::Null),
            },
            Count::Exactly(count) => (0..count).map(|_| read(octets)).collect(),
            Count::UpTo(most) => {
                let count = word(octets).filter(|count| *count <= most)?;
                (0..count).map(|_| read(octets)).collect()
            }
        }
    }

    fn write(&self, of: &str, value: &Value, out: &mut Vec<u8>) -> Option<()> {
        match (of, self.types.get(of)) {
            ("unsigned int", _) => put(u32::try_from(value.as_u64()?).ok()?, out),
            ("unsigned hyper", _) => out.extend(value.as_u64()?.to_be_bytes()),
            ("bool", _) => put(value.as_bool()?.into(), out),
            (_, Some(Type::Alias(member))) => self.write_member(member, value, out)?,
            (_, Some(Type::Enum(members))) => {
                put(members.iter().find(|member| *value == member.0)?.1, out);
            }
            (_, Some(Type::Struct(members))) => {
                for member in members {
                    self.write_member(member, value.get(&member.name)?, out)?;
                }
            }
            (_, Some(Type::Union(on, arms))) => {
                let start = out.len();
                self.write_member(on, value.get(&on.name)?, out)?;
                let arm = arm(arms, word(&mut &out[start..])?)?;
                if arm.of != "void" {
                    self.write_member(arm, value.get(&arm.name)?, out)?;
                }
            }
            (other, None) => panic!("{other} is not declared"),
        }
        Some(())
    }

    fn write_member(&self, member: &Member, value: &Value, out: &mut Vec<u8>) -> Option<()> {
        let of = member.of.as_str();
        match member.count {
            Count::One => self.write(of, value, out),
            Count::Optional => match self.linked(of) {
                Some(entry) => {
                    for value in value.as_array()? {
                        put(1, out);
                        self.write_member(entry, value, out)?;
                    }
                    put(0, out);
                    Some(())
                }
                None => {
                    put((!value.is_null()).into(), out);
                    let there = Some(value).filter(|value| !value.is_null());
                    there.map_or(Some(()), |value| self.write(of, value, out))
                }
            },
            count @ (Count::Exactly(_) | Count::UpTo(_)) => {
                let is_opaque = of == "opaque";
                let data = if is_opaque {
                    octets(value.as_str()?)
                } else {
                    Vec::new()
                };
                let len = if is_opaque {
                    data.len()
                } else {
                    value.as_array()?.len()
                };
                if matches!(count, Count::UpTo(_)) {
                    put(u32::try_from(len).ok()?, out);
                }
                if is_opaque {
                    out.extend(&data);
                    out.resize(out.len().next_multiple_of(4), 0);
                    return Some(());
                }
                let mut values = value.as_array()?.iter();
                values.try_for_each(|value| self.write(of, value, out))
            }
        }
    }
}

fn arm(arms: &[(Option<u32>, Member)], which: u32) -> Option<&Member> {
    let found = |case| arms.iter().find(|arm| arm.0 == case).map(|arm| &arm.1);
    found(Some(which)).or_else(|| found(None))
}

fn take<'a>(octets: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (data, rest) = octets.split_at_checked(len)?;
    *octets = rest;
    Some(data)
}

fn word(octets: &mut &[u8]) -> Option<u32> {
    let octets = take(octets, 4)?;
    Some(u32::from_be_bytes(octets.try_into().ok()?))
}

fn boolean(octets: &mut &[u8]) -> Option<bool> {
    match word(octets)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn put(word: u32, out: &mut Vec<u8>) {
    out.extend(word.to_be_bytes());
}

/// Hexadecimal digits of octets.
pub(crate) fn digits(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The octets that hexadecimal digits stand for; between octets there may be spaces.
pub(crate) fn octets(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    let octet = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(octet).collect()
}
