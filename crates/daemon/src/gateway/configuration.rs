//! Configuration of a gateway from a command line and a file: its settings and its pairs.

use super::file::{File, GatewayFile};
use super::pairs::GatewayOptions;
use super::plan::{self, PairPlan};
use super::settings::GatewaySettings;
use super::urls::ListenUrl;
use crate::config::Given;
use crate::config::given::FileOptions;
use crate::config::keys::SettingsTable;
use crate::errors::{Usage, check_none};
use crate::listen::MAX_LISTEN;
use anyhow::bail;
use std::path::{Path, PathBuf};

/// Settings of `[gateway]` that need no restart: they are those of pairs.
const OF_PAIRS: [&str; 3] = ["allow", "provider", "device"];

/// Source of the configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Source {
    /// Settings of the command line, or of a program, with their defaults.
    pub settings: GatewaySettings,
    /// Those of the settings that go before those of the file.
    pub given: Given,
    /// The pairs.
    pub pairs: PairsFrom,
}

/// Source of pairs.
#[derive(Clone, Debug)]
pub enum PairsFrom {
    /// This file, which has settings too.
    File(PathBuf),
    /// Addresses to listen at: a pair for each, which is like this one in all but that and its clients.
    CommandLine(Vec<ListenUrl>, Box<PairPlan>),
}

impl Source {
    /// Reads the configuration, as far as it is understood, and returns the errors of the rest.
    ///
    /// # Errors
    ///
    /// If the command line makes no sense, or the file cannot be read or is no TOML.
    pub fn read(self) -> anyhow::Result<(Configuration, Vec<anyhow::Error>)> {
        let mut configuration = Configuration {
            settings: self.settings.clone(),
            pairs: Vec::new(),
            in_file: FileOptions::default(),
            source: self,
        };
        let errors = match configuration.source.pairs.clone() {
            PairsFrom::File(path) => configuration.add_file(&path)?,
            PairsFrom::CommandLine(listen, pair) => {
                configuration.add_pairs(&listen, &pair)?;
                Vec::new()
            }
        };
        Ok((configuration, errors))
    }
}

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Configuration {
    source: Source,
    /// The settings.
    pub settings: GatewaySettings,
    /// The pairs, in order.
    pub pairs: Vec<PairPlan>,
    /// The settings of the file that take effect at a restart.
    in_file: FileOptions,
}

impl Configuration {
    /// Options of the gateway beside its pairs.
    pub fn options(&self) -> GatewayOptions {
        let settings = &self.settings;
        GatewayOptions {
            trust_local: settings.trust_local,
            call_timeout: settings.call_timeout,
            in_file: self.file().is_some(),
            server: settings.serving.apply(settings.connections.server()),
            client: settings.connections.client(),
            iwarp: settings.connections.iwarp(),
        }
    }

    /// Name of the setting with the address of metrics, for errors.
    pub fn metrics_setting(&self) -> String {
        let in_file = self.file().is_some();
        self.source.given.name_of("metrics", "gateway", in_file)
    }

    /// The file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.source.pairs {
            PairsFrom::File(path) => Some(path),
            PairsFrom::CommandLine(..) => None,
        }
    }

    /// Reads everything again. Names the settings of the file that differ and take effect at a restart.
    ///
    /// # Errors
    ///
    /// If anything is wrong.
    pub(super) fn reread(&self) -> anyhow::Result<(Self, Vec<String>)> {
        let (read, errors) = self.source.clone().read()?;
        check_none(errors)?;
        let changed = read.in_file.changed(&self.in_file);
        Ok((read, changed))
    }

    /// Adds settings and pairs of the file. Returns its errors.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no TOML, or has two settings that cannot be there together.
    fn add_file(&mut self, path: &Path) -> anyhow::Result<Vec<anyhow::Error>> {
        let (file, mut errors) = GatewayFile::load(path)?;
        let keys = GatewaySettings::keys();
        let table = SettingsTable::<_, File>::new(&file.file, "gateway", &file.options, keys);
        table.apply(&mut self.settings, &self.source.given, &mut errors)?;
        let provider = &self.settings.connections.provider;
        self.pairs = file.pairs(&self.settings.allow, provider, &mut errors);
        self.in_file = FileOptions::new(&file.options, &OF_PAIRS);
        Ok(errors.into_errors())
    }

    /// Adds the pairs of the command line.
    ///
    /// # Errors
    ///
    /// If there are too many addresses to listen at, a pair contradicts itself, or two have the same port.
    fn add_pairs(&mut self, listen: &[ListenUrl], pair: &PairPlan) -> anyhow::Result<()> {
        if listen.len() > MAX_LISTEN {
            bail!(Usage(format!(
                "there are more than {MAX_LISTEN} addresses to listen at"
            )));
        }
        let allow = |listen: &ListenUrl| plan::clients_or_local(&self.settings.allow, listen);
        let pairs = plan::at_each(pair, listen, allow);
        let contradictions = plan::contradictions(&pairs).into_iter();
        let contradictions = contradictions.map(|(option, what)| {
            let option = option.replace('_', "-");
            Usage(format!("--{option}: {what}")).into()
        });
        check_none(contradictions.collect())?;
        let twice = plan::ports_given_twice(&pairs).into_iter();
        let twice = twice.map(|(_, what)| Usage(what).into());
        check_none(twice.collect())?;
        self.pairs = pairs;
        Ok(())
    }
}
