CREATE TABLE entries(ref TEXT, day TEXT, account TEXT, amount TEXT);
INSERT INTO entries VALUES
  ('R-1', '2024-02-03', 'Rent', '(950.00)'),
  ('R-2', '04.02.2024', 'Petty  Cash', '12'),
  (' r-1 ', '2024-02-05', 'rent', '(955.50)'),
  ('R-3', '7/2/24', 'Sales', 'EUR 1,234.5'),
  ('R-4', 'soon', 'Sales', '3.00'),
  ('R-5', '2024-02-09', 'petty cash', '-12'),
  ('R-6', '2024-02-10', 'Sales', 'twelve'),
  ('R-3', '2024-02-30', 'Sales', '1.00');
