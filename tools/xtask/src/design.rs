//! Decisions behind this crate, with their reasons.
//!
//! - **cargo-deb makes the Debian package.** `cargo xtask package` installs a fixed version below `target`: its library is
//!   experimental, and debhelper would need a second description of the build. The program generates manual pages and
//!   completions from the definitions of its command line. Installing the package enables and starts nothing.
//! - **The container image is written without an engine**: a layer, three documents and an archive around them, with the
//!   time of the last commit, so that the same sources make the same bytes. Its program is statically linked with glibc,
//!   which since version 2.34 resolves names and users by files and DNS without loading a module. musl would bring another
//!   allocator and another resolver than those tested everywhere else. The program gets random numbers from getrandom(2),
//!   which the crate of that name looks up at run time by default and does not find in a static program.
//! - **mdBook builds the documentation** from the Markdown pages that code hosts show. `cargo xtask docs` copies the pages,
//!   and the files they link to, at the same relative paths, so that every link works in both places.
//! - **Every limit is on one page**, Limits (`docs/design/limits.md`), and every MUST and SHOULD of the RFCs has a row in the
//!   compliance tables (`docs/design/compliance/README.md`) with its tests. `cargo xtask tidy` compares both with the
//!   sources. Rows that matter most have a patch that breaks their rule: `cargo xtask tidy --break` runs their tests with it.
