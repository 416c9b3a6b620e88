BEGIN TRANSACTION;
CREATE TABLE ledger (
	id TEXT NOT NULL, 
	schema INTEGER NOT NULL, 
	rule TEXT NOT NULL, 
	limits_digest TEXT NOT NULL, 
	charter TEXT NOT NULL, 
	head_seq BIGINT NOT NULL, 
	head_digest TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO ledger VALUES('c482685270af956a',1,'residue','9da3d1913b25409e14bb97908f15c9534f7283d5c3ed0d079ee35e566f4b83e3','{"adjacency":"add-remove","gates":[{"filters":[{"accounts":[["T",0.05591920085292435],["A",2e-08]],"kappa":8.941472559936486e-08,"kind":"residue","order":0.0}],"limit":{"delta":1e-06,"eps":1.0},"scope":"all"}],"group":1,"partitions":[{"fixed":false,"most":1,"name":"region","parts":["north","south"],"scope":"all"}],"plan":[],"rule":"residue","scopes":[["all",""]],"unit":""}',3,'3dbdad491b0d435128d3607af1c9ff86e305840d61250ce55ea09d7d5e6cd5ac');
CREATE TABLE entry (
	seq BIGINT NOT NULL, 
	time TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	release TEXT, 
	"key" TEXT, 
	actor TEXT, 
	reason TEXT, 
	code_version TEXT NOT NULL, 
	body TEXT NOT NULL, 
	prev TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE ("key"), 
	UNIQUE (prev), 
	UNIQUE (digest)
);
INSERT INTO entry VALUES(1,'2026-11-27T04:15:37.059Z','init',NULL,NULL,NULL,NULL,'0.2.0','{"charter":{"adjacency":"add-remove","gates":[{"filters":[{"accounts":[["T",0.05591920085292435],["A",2e-08]],"kappa":8.941472559936486e-08,"kind":"residue","order":0.0}],"limit":{"delta":1e-06,"eps":1.0},"scope":"all"}],"group":1,"partitions":[{"fixed":false,"most":1,"name":"region","parts":["north","south"],"scope":"all"}],"plan":[],"rule":"residue","scopes":[["all",""]],"unit":""}}','ecb374263ed9298979ec1b4ac7d3a97350d8dbd1b31eeb10f5ec5e39bcf7af33','509b93ffe7315cb59f3f5cbf0059233e4188edf1b46a3c5eb50e317cddaaa7e7');
INSERT INTO entry VALUES(2,'2026-11-27T04:15:40.473Z','spend','2','july','reports',NULL,'0.2.0','{"bookings":[{"amounts":[17882945119873,0],"filter":0,"gate":0,"release":"2","tier":0}],"expires":null,"kind":"spend","place":"all","planned":false,"planned_steps":[],"records":0,"request":"35450abbdbbaaf14ab932cd06d0d947521f603d388e5e8ee5f77a32d6e312f0d","steps":[{"mech":"gauss","n":10,"sampling":"none","sensitivity":1.0,"sigma":100.0}]}','509b93ffe7315cb59f3f5cbf0059233e4188edf1b46a3c5eb50e317cddaaa7e7','1548e2c7517bade8f9cc7eb8c50a6af14e5d90ba75be0c575bbbe6159637bff9');
INSERT INTO entry VALUES(3,'2026-11-27T04:15:43.959Z','reserve','3','august',NULL,NULL,'0.2.0','{"bookings":[{"amounts":[44616611829746,11154152957437],"filter":0,"gate":0,"release":"3","tier":0}],"expires":"2343-10-17T22:02:23.959Z","kind":"reserve","place":"all:region=north","planned":false,"planned_steps":[],"records":0,"request":"b6a5de13e6750f04050c83722efc13830f9f77e30f479d0d5988dbfb98cc37cd","steps":[{"mech":"laplace","n":1,"sampling":"none","scale":20.0,"sensitivity":1.0}]}','1548e2c7517bade8f9cc7eb8c50a6af14e5d90ba75be0c575bbbe6159637bff9','3dbdad491b0d435128d3607af1c9ff86e305840d61250ce55ea09d7d5e6cd5ac');
CREATE TABLE release (
	id TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	part TEXT NOT NULL, 
	state TEXT NOT NULL, 
	expires TEXT, 
	nonce_digest TEXT, 
	pair_digest TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "release" VALUES('2','all','','begun',NULL,NULL,'35450abbdbbaaf14ab932cd06d0d947521f603d388e5e8ee5f77a32d6e312f0d');
INSERT INTO "release" VALUES('3','all',':region=north','reserved','2343-10-17T22:02:23.959Z',NULL,'b6a5de13e6750f04050c83722efc13830f9f77e30f479d0d5988dbfb98cc37cd');
CREATE TABLE charge (
	release TEXT NOT NULL, 
	gate INTEGER NOT NULL, 
	filter INTEGER NOT NULL, 
	account INTEGER NOT NULL, 
	amount BIGINT NOT NULL, 
	tier INTEGER NOT NULL, 
	UNIQUE (release, gate, filter, account)
);
INSERT INTO charge VALUES('2',0,0,0,17882945119873,0);
INSERT INTO charge VALUES('2',0,0,1,0,0);
INSERT INTO charge VALUES('3',0,0,0,44616611829746,0);
INSERT INTO charge VALUES('3',0,0,1,11154152957437,0);
CREATE TABLE account (
	gate INTEGER NOT NULL, 
	filter INTEGER NOT NULL, 
	account INTEGER NOT NULL, 
	scope TEXT NOT NULL, 
	part TEXT NOT NULL, 
	booked BIGINT NOT NULL, 
	UNIQUE (gate, filter, account, scope, part), 
	CHECK (booked >= 0 AND booked <= 1000000000000000)
);
INSERT INTO account VALUES(0,0,0,'all','',17882945119873);
INSERT INTO account VALUES(0,0,1,'all','',0);
INSERT INTO account VALUES(0,0,0,'all',':region=north',44616611829746);
INSERT INTO account VALUES(0,0,1,'all',':region=north',11154152957437);
CREATE TABLE closed (
	gate INTEGER, 
	filter INTEGER, 
	UNIQUE (gate, filter)
);
CREATE TABLE refusal (
	time TEXT NOT NULL, 
	place TEXT NOT NULL, 
	body TEXT NOT NULL, 
	actor TEXT, 
	reason TEXT, 
	because TEXT NOT NULL
);
CREATE TABLE tariff (
	unit TEXT NOT NULL, 
	filter TEXT NOT NULL, 
	tier INTEGER NOT NULL, 
	charge TEXT NOT NULL, 
	UNIQUE (unit, filter, tier)
);
INSERT INTO tariff VALUES('92e68ecd78838e7afd52e88ea8a236274a141ae2cc0b94872e0d7580349b6d7f','b75e246e5cc6193a532f97e2089f2e2ca08891f3145b6e8ad9d3bb5c40aa5b93',0,'1/10000 0');
INSERT INTO tariff VALUES('98994e609b7542578e82fb8b61d527953fdbbf130fa0b13421b66f53cf90a5e8','b75e246e5cc6193a532f97e2089f2e2ca08891f3145b6e8ad9d3bb5c40aa5b93',0,'1247462639142238247462639142237/500000000000000000000000000000000 5577076478718142519380077415859307530718677313365227119979591/25000000000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE grown (
	seq BIGINT NOT NULL, 
	digest TEXT NOT NULL, 
	state BLOB NOT NULL
);
CREATE INDEX ix_entry_release ON entry (release);
CREATE INDEX ix_release_state ON release (state);
CREATE TRIGGER entry_no_update BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entry_no_delete BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
COMMIT;
