//! A program or library: which functions are at a place of its file.

use super::layer::Frame;
use addr2line::Context;
use addr2line::gimli::{self, Dwarf, EndianSlice, NativeEndian};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};

type Debug<'data> = EndianSlice<'data, NativeEndian>;

/// A parsed ELF file.
pub(crate) struct Image<'data> {
    file: ElfFile64<'data>,
    /// Nothing, if the file has no debug information that can be used.
    context: Option<Context<Debug<'data>>>,
    /// First and last address of each symbol, and its name, in order.
    symbols: Vec<(u64, u64, &'data str)>,
}

impl<'data> Image<'data> {
    pub(crate) fn parse(data: &'data [u8]) -> Option<Self> {
        let file = ElfFile64::parse(data).ok()?;
        let section = |id: gimli::SectionId| {
            let section = file.section_by_name(id.name());
            // One that is compressed is as good as none.
            let data = section.and_then(|section| section.data().ok());
            Ok::<_, gimli::Error>(EndianSlice::new(data.unwrap_or_default(), NativeEndian))
        };
        let context = Dwarf::load(section).and_then(Context::from_dwarf).ok();
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let sized = symbols.filter(|symbol| symbol.size() > 0);
        let mut symbols: Vec<_> = sized
            .filter_map(|symbol| {
                let end = symbol.address().checked_add(symbol.size())?;
                Some((symbol.address(), end, symbol.name().ok()?))
            })
            .collect();
        symbols.sort_unstable();
        Some(Self {
            file,
            context,
            symbols,
        })
    }

    /// The functions at this offset of the file, each inlined into the next.
    pub(super) fn functions(&self, offset: u64) -> Vec<Frame> {
        let address = self.address(offset);
        address.map_or_else(Vec::new, |address| self.functions_at(address))
    }

    /// The functions at this address, among those of the file itself.
    pub(crate) fn functions_at(&self, address: u64) -> Vec<Frame> {
        let mut frames = self.inlined(address).unwrap_or_default();
        // A function into which nothing was inlined has no name in the debug information.
        if let Some(name) = self.symbol(address) {
            let function = demangled(name);
            match frames.last_mut() {
                Some(outermost) => outermost.function = function,
                None => frames.push(Frame {
                    function,
                    file: String::new(),
                }),
            }
        }
        frames
    }

    /// Address of this offset, among those of the file itself.
    fn address(&self, offset: u64) -> Option<u64> {
        self.file.segments().find_map(|segment| {
            let (start, size) = segment.file_range();
            let inside = offset.checked_sub(start).filter(|&inside| inside < size)?;
            segment.address().checked_add(inside)
        })
    }

    /// The bytes of the file from this address to the end of its segment.
    pub(crate) fn code_at(&self, address: u64) -> Option<&'data [u8]> {
        self.file.segments().find_map(|segment| {
            let inside = usize::try_from(address.checked_sub(segment.address())?).ok()?;
            segment
                .data()
                .ok()?
                .get(inside..)
                .filter(|code| !code.is_empty())
        })
    }

    fn inlined(&self, address: u64) -> Option<Vec<Frame>> {
        let context = self.context.as_ref()?;
        let mut found = context.find_frames(address).skip_all_loads().ok()?;
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = found.next() {
            let name = frame
                .function
                .as_ref()
                .and_then(|name| name.raw_name().ok());
            let file = frame.location.and_then(|location| location.file);
            frames.push(Frame {
                function: demangled(name.as_deref().unwrap_or_default()),
                file: file.unwrap_or_default().to_owned(),
            });
        }
        Some(frames)
    }

    /// The function here by the symbols of the file. A library has at least those that others call.
    fn symbol(&self, address: u64) -> Option<&'data str> {
        let behind = self
            .symbols
            .partition_point(|&(begin, ..)| begin <= address);
        let (_, end, name) = *self.symbols.get(behind.checked_sub(1)?)?;
        (address < end).then_some(name)
    }
}

/// A name as one would write it, without the hash of its crate.
fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}
