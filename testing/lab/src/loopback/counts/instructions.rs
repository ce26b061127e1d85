//! Meaning of the instructions of an object file: which are atomic, and how many bytes a copy stores.

use crate::loopback::profiler::{Frame, Image, Layer, Module, layer};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind,
};
use std::path::Path;

/// Bytes of the longest instruction.
const LONGEST: usize = 15;

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meaning {
    pub(super) layer: Layer,
    /// Whether it locks the line that it changes.
    pub(super) is_atomic: bool,
    /// Bytes that it stores, if it is part of a copy.
    pub(super) copied: u64,
}

/// Decodes the instructions of one object file.
pub(super) struct Decoded<'data> {
    image: Option<Image<'data>>,
    is_c_library: bool,
    information: InstructionInfoFactory,
}

impl<'data> Decoded<'data> {
    /// Of the file at this path, with its content.
    pub(super) fn new(path: &str, data: &'data [u8]) -> Self {
        let name = Path::new(path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        Self {
            image: Image::parse(data),
            is_c_library: name.starts_with("libc.") || name.starts_with("libc-"),
            information: InstructionInfoFactory::new(),
        }
    }

    /// The instruction at an address, in this function.
    pub(super) fn meaning(&mut self, address: u64, function: &str) -> Meaning {
        let Some(image) = &self.image else {
            return Meaning {
                layer: Layer::Unknown,
                is_atomic: false,
                copied: 0,
            };
        };
        let mut frames = image.functions_at(address);
        if self.is_c_library {
            frames = vec![Frame::of_function(function)];
        }
        let module = if self.is_c_library {
            Module::CLibrary
        } else {
            Module::Program
        };
        let layer = layer(&frames, module);
        let Some(instruction) = image
            .code_at(address)
            .and_then(|code| decode(code, address))
        else {
            return Meaning {
                layer,
                is_atomic: false,
                copied: 0,
            };
        };
        let copied = match layer {
            Layer::Copies => self.stored(&instruction),
            _ => 0,
        };
        Meaning {
            layer,
            is_atomic: is_atomic(&instruction),
            copied,
        }
    }

    /// Bytes that an instruction stores; of one that is repeated, each time.
    fn stored(&mut self, instruction: &Instruction) -> u64 {
        let options = InstructionInfoOptions::NO_REGISTER_USAGE;
        let information = self.information.info_options(instruction, options);
        let mut memory = information.used_memory().iter();
        let stores = memory.any(|memory| {
            matches!(
                memory.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite
            )
        });
        if stores {
            instruction.memory_size().size() as u64
        } else {
            0
        }
    }
}

fn decode(code: &[u8], address: u64) -> Option<Instruction> {
    let code = &code[..code.len().min(LONGEST)];
    let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// An exchange with memory locks its line without a prefix, too.
fn is_atomic(instruction: &Instruction) -> bool {
    let exchanges = instruction.mnemonic() == Mnemonic::Xchg
        && (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
    instruction.has_lock_prefix() || exchanges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(code: &[u8]) -> Instruction {
        decode(code, 0x1000).expect("an instruction")
    }

    #[test]
    fn instructions_that_lock_a_line_are_atomic() {
        // lock cmpxchg %ecx,(%rdi); xchg %eax,(%rdi); xchg %eax,%ecx; mov %eax,(%rdi)
        let cases: [(&[u8], bool); 4] = [
            (&[0xf0, 0x0f, 0xb1, 0x0f], true),
            (&[0x87, 0x07], true),
            (&[0x91], false),
            (&[0x89, 0x07], false),
        ];
        for (code, expected) in cases {
            assert_eq!(is_atomic(&one(code)), expected, "{code:x?}");
        }
    }

    #[test]
    fn stores_are_counted_in_bytes_and_loads_are_not() {
        let mut decoded = Decoded::new("/lib/libc.so.6", &[]);
        // vmovdqu %ymm0,(%rdi); vmovdqu (%rsi),%ymm0; mov %al,(%rdi); rep movsb
        let cases: [(&[u8], u64); 4] = [
            (&[0xc5, 0xfe, 0x7f, 0x07], 32),
            (&[0xc5, 0xfe, 0x6f, 0x06], 0),
            (&[0x88, 0x07], 1),
            (&[0xf3, 0xa4], 1),
        ];
        for (code, expected) in cases {
            assert_eq!(decoded.stored(&one(code)), expected, "{code:x?}");
        }
    }

    #[test]
    fn octets_that_are_no_instruction_mean_nothing() {
        assert!(decode(&[0x06], 0).is_none());
        assert!(decode(&[], 0).is_none());
    }
}
