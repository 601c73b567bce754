//! What a tool really gets: what it wants and was granted, and nothing else.

use std::path::PathBuf;

use ringwall_spec::DirAccess;

use crate::manifest::Wants;

/// A directory of this machine and where the tool sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGrant {
    pub guest: String,
    pub host: PathBuf,
    pub access: DirAccess,
}

/// What policy allows one call to reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    pub dirs: Vec<DirGrant>,
    pub env: Vec<(String, String)>,
}

/// Why grants and wishes do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error(
        "the tool does not ask for the directory {guest}; {}, or leave the grant out",
        asked_dirs(wanted)
    )]
    UnwantedDir { guest: String, wanted: Vec<String> },
    #[error("the directory {0} is granted twice; leave one out")]
    DirTwice(String),
    #[error("the tool needs the directory {path}{}; grant it with --dir {path}=DIR{}", because(why), mode(*access))]
    MissingDir { path: String, access: DirAccess, why: String },
    #[error("the tool does not ask for the variable {0}; leave it out")]
    UnwantedVariable(String),
    #[error("the variable {0} is given twice; leave one out")]
    VariableTwice(String),
}

fn asked_dirs(wanted: &[String]) -> String {
    match wanted {
        [] => "it asks for none".to_owned(),
        wanted => format!("it asks for {}", wanted.join(", ")),
    }
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}

fn mode(access: DirAccess) -> &'static str {
    match access {
        DirAccess::Read => "",
        DirAccess::Write => ":rw",
    }
}

impl Wants {
    /// Of grants that are there for several tools, those that this one asks for.
    pub fn wanted_of(&self, granted: &Grants) -> Grants {
        let dir = |grant: &&DirGrant| self.dirs.iter().any(|wish| wish.path == grant.guest);
        let variable = |(name, _): &&(String, String)| self.env.contains(name);
        Grants {
            dirs: granted.dirs.iter().filter(dir).cloned().collect(),
            env: granted.env.iter().filter(variable).cloned().collect(),
        }
    }

    /// The grants cut down to the wishes: a directory is writable only if it was both wanted and
    /// granted so. A grant that was not asked for is refused, as is a need that was not granted.
    pub fn narrow(&self, granted: Grants) -> Result<Grants, GrantError> {
        let mut dirs: Vec<DirGrant> = Vec::with_capacity(granted.dirs.len());
        for grant in granted.dirs {
            let wish = self.dirs.iter().find(|wish| wish.path == grant.guest);
            let Some(wish) = wish else {
                let wanted = self.dirs.iter().map(|wish| wish.path.clone()).collect();
                return Err(GrantError::UnwantedDir { guest: grant.guest, wanted });
            };
            if dirs.iter().any(|other| other.guest == grant.guest) {
                return Err(GrantError::DirTwice(grant.guest));
            }
            dirs.push(DirGrant { access: grant.access.min(wish.access), ..grant });
        }
        let missing = self
            .dirs
            .iter()
            .find(|wish| !wish.optional && !dirs.iter().any(|dir| dir.guest == wish.path));
        if let Some(wish) = missing {
            let (path, why) = (wish.path.clone(), wish.why.clone());
            return Err(GrantError::MissingDir { path, access: wish.access, why });
        }
        for (index, (name, _)) in granted.env.iter().enumerate() {
            if !self.env.contains(name) {
                return Err(GrantError::UnwantedVariable(name.clone()));
            }
            if granted.env[..index].iter().any(|(other, _)| other == name) {
                return Err(GrantError::VariableTwice(name.clone()));
            }
        }
        Ok(Grants { dirs, env: granted.env })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::DirWish;

    fn wants(access: DirAccess, optional: bool) -> Wants {
        let why = "where to search".to_owned();
        let work = DirWish { path: "/work".to_owned(), access, optional, why };
        Wants { dirs: vec![work], env: vec!["LANG".to_owned()], ..Wants::default() }
    }

    fn dir(guest: &str, access: DirAccess) -> Grants {
        let dir = DirGrant { guest: guest.to_owned(), host: "/src".into(), access };
        Grants { dirs: vec![dir], ..Grants::default() }
    }

    #[test]
    fn a_directory_is_writable_only_if_wanted_and_granted() {
        use DirAccess::{Read, Write};
        for (wanted, granted, got) in
            [(Read, Read, Read), (Read, Write, Read), (Write, Read, Read), (Write, Write, Write)]
        {
            let narrowed = wants(wanted, false).narrow(dir("/work", granted)).unwrap();
            assert_eq!(narrowed.dirs[0].access, got, "{wanted:?} {granted:?}");
        }
    }

    #[test]
    fn what_was_not_asked_for_is_not_given() {
        let wants = wants(DirAccess::Read, true);
        let told = wants.narrow(dir("/etc", DirAccess::Read)).unwrap_err().to_string();
        assert!(told.contains("does not ask for the directory /etc; it asks for /work"), "{told}");
        let env = vec![("PATH".to_owned(), String::new())];
        let told = wants.narrow(Grants { env, ..Grants::default() }).unwrap_err().to_string();
        assert!(told.contains("does not ask for the variable PATH"), "{told}");
    }

    #[test]
    fn a_need_that_was_not_granted_says_how_to_grant_it() {
        let told = wants(DirAccess::Write, false).narrow(Grants::default()).unwrap_err();
        let expected = "the tool needs the directory /work (where to search); grant it with --dir /work=DIR:rw";
        assert_eq!(told.to_string(), expected);
        assert!(wants(DirAccess::Write, true).narrow(Grants::default()).unwrap().dirs.is_empty());
    }

    #[test]
    fn of_grants_for_many_tools_each_gets_what_it_asks_for() {
        let mut granted = dir("/work", DirAccess::Read);
        granted.dirs.extend(dir("/data", DirAccess::Read).dirs);
        granted.env = vec![("LANG".to_owned(), String::new()), ("KEY".to_owned(), String::new())];
        let wanted = wants(DirAccess::Read, true).wanted_of(&granted);
        assert_eq!((wanted.dirs.len(), wanted.env.len()), (1, 1));
        assert_eq!((wanted.dirs[0].guest.as_str(), wanted.env[0].0.as_str()), ("/work", "LANG"));
    }

    #[test]
    fn nothing_is_granted_twice() {
        let mut twice = dir("/work", DirAccess::Read);
        twice.dirs.push(twice.dirs[0].clone());
        let told = wants(DirAccess::Read, true).narrow(twice).unwrap_err();
        assert_eq!(told, GrantError::DirTwice("/work".to_owned()));
        let env = vec![("LANG".to_owned(), "C".to_owned()); 2];
        let twice = Grants { env, ..Grants::default() };
        let told = wants(DirAccess::Read, true).narrow(twice).unwrap_err();
        assert_eq!(told, GrantError::VariableTwice("LANG".to_owned()));
    }
}
