//! The image for containers, as an archive of an OCI image layout (Open Container Initiative, Image Format
//! Specification 1.1), which needs no container engine to be made.
//!
//! Docker's own list of contents is in it too, for `docker load` of versions that do not know the other.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use tar::{Builder, Header};

use super::facts::{self, Progress, sha256};
use super::root::{self, Tree};
use programs::command::output;

/// Environment of the image. `contrib/Containerfile` says the same.
const ENV: [&str; 1] = ["STATE_DIRECTORY=/var/lib/rpcrdma"];
const PORTS: [&str; 3] = ["2049/tcp", "20048/tcp", "20049/tcp"];
const VOLUMES: [&str; 2] = ["/export", "/var/lib/rpcrdma"];
const STOP_SIGNAL: &str = "SIGTERM";
const ENTRYPOINT: [&str; 1] = ["/usr/bin/rpcrdma"];
const COMMAND: [&str; 2] = ["serve", "/export"];

/// Makes the archive in `folder`.
///
/// # Errors
///
/// The program does not build, or a file cannot be written.
pub(super) fn make(folder: &Path, progress: &Progress) -> Result<PathBuf> {
    let tree = root::tree(progress)?;
    progress.say("the image");
    let architecture = architecture()?;
    let version = facts::version();
    let archive = image(&tree, architecture, version, facts::source_time()?)?;
    let path = folder.join(format!("rpcrdma_{version}_{architecture}.oci.tar"));
    fs::write(&path, archive).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// This machine's, as the specification names it.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no image is made for {other}"),
    }
}

/// A file of the layout that others name by its checksum.
struct Blob {
    digest: String,
    content: Vec<u8>,
}

impl Blob {
    fn new(content: Vec<u8>) -> Self {
        Self {
            digest: sha256(&content),
            content,
        }
    }

    fn json(content: &Value) -> Result<Self> {
        Ok(Self::new(serde_json::to_vec(content)?))
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({
            "mediaType": media_type,
            "digest": format!("sha256:{}", self.digest),
            "size": self.content.len(),
        })
    }
}

/// The archive of an image with this tree for its one layer.
fn image(tree: &Tree, architecture: &str, version: &str, time: u64) -> Result<Vec<u8>> {
    let plain = tree.archive(time)?;
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::best());
    packed.write_all(&plain)?;
    let layer = Blob::new(packed.finish()?);
    let name = format!("rpcrdma:{version}");
    let config = Blob::json(&json!({
        "created": date(time)?,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Env": ENV,
            "ExposedPorts": set(&PORTS),
            "Volumes": set(&VOLUMES),
            "StopSignal": STOP_SIGNAL,
            "Entrypoint": ENTRYPOINT,
            "Cmd": COMMAND,
            "Labels": {
                "org.opencontainers.image.title": "rpcrdma",
                "org.opencontainers.image.description": "NFS over RDMA in userspace",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&plain))]},
        "history": [{"created": date(time)?, "created_by": "cargo xtask package"}],
    }))?;
    let manifest = Blob::json(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar+gzip")],
    }))?;
    let mut described = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
    described["platform"] = json!({"architecture": architecture, "os": "linux"});
    described["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    let for_docker = json!([{
        "Config": config.path(),
        "RepoTags": [name],
        "Layers": [layer.path()],
    }]);
    let mut files = vec![
        (
            "oci-layout".to_owned(),
            serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?,
        ),
        ("index.json".to_owned(), serde_json::to_vec(&index)?),
        ("manifest.json".to_owned(), serde_json::to_vec(&for_docker)?),
    ];
    files.extend([layer, config, manifest].map(|blob| (blob.path(), blob.content)));
    files.sort();
    let mut archive = Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = Header::new_ustar();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(time);
        header.set_size(content.len().try_into()?);
        archive.append_data(&mut header, path, content.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

/// A set, which the specification writes as an object with empty values.
fn set(of: &[&str]) -> Value {
    Value::Object(
        of.iter()
            .map(|one| ((*one).to_owned(), json!({})))
            .collect(),
    )
}

/// A time as RFC 3339 has it.
fn date(time: u64) -> Result<String> {
    let said = output(Command::new("date").args([
        "--utc",
        "+%Y-%m-%dT%H:%M:%SZ",
        &format!("--date=@{time}"),
    ]))?;
    Ok(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        entries.collect()
    }

    #[test]
    fn image_leads_from_its_index_to_the_layer_by_checksums() {
        let tree = Tree::default();
        let archive = image(&tree, "amd64", "1.2.3", 1_000_000_000).unwrap();
        assert_eq!(
            archive,
            image(&tree, "amd64", "1.2.3", 1_000_000_000).unwrap()
        );
        let files = files(&archive);
        let json = |content: &[u8]| serde_json::from_slice::<Value>(content).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let digest = digest.strip_prefix("sha256:").unwrap();
            let content = files[&format!("blobs/sha256/{digest}")].clone();
            assert_eq!(sha256(&content), digest);
            assert_eq!(descriptor["size"], content.len());
            content
        };
        let index = json(&files["index.json"]);
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        assert_eq!(config["created"], "2001-09-09T01:46:40Z");
        let layer = blob(&manifest["layers"][0]);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(layer.as_slice())
            .read_to_end(&mut plain)
            .unwrap();
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            format!("sha256:{}", sha256(&plain))
        );
        let for_docker = json(&files["manifest.json"]);
        assert_eq!(for_docker[0]["RepoTags"][0], "rpcrdma:1.2.3");
        assert!(files.contains_key(for_docker[0]["Config"].as_str().unwrap()));
        assert!(files.contains_key(for_docker[0]["Layers"][0].as_str().unwrap()));
    }

    #[test]
    fn containerfile_says_the_same_of_the_image() {
        let file = fs::read_to_string(programs::root().join("contrib/Containerfile")).unwrap();
        let (_, image) = file.split_once("FROM scratch\n").unwrap();
        let lines = image
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let said: Vec<String> = lines.map(str::to_owned).collect();
        let list = |of: &[&str]| serde_json::to_string(of).unwrap().replace(',', ", ");
        let expected = [
            "COPY --from=build /image /".to_owned(),
            format!("ENV {}", ENV.join(" ")),
            format!("EXPOSE {}", PORTS.join(" ")),
            format!("VOLUME {}", list(&VOLUMES)),
            format!("STOPSIGNAL {STOP_SIGNAL}"),
            format!("ENTRYPOINT {}", list(&ENTRYPOINT)),
            format!("CMD {}", list(&COMMAND)),
        ];
        assert_eq!(said, expected);
    }
}
